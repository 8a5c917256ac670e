from gorun.helpers import *

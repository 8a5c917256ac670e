from gorun.exceptions import *

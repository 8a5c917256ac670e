from gorun.features import *

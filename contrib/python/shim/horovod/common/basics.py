from gorun.basics import *

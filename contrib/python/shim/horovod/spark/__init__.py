from gorun.spark import *

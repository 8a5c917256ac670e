from gorun.ray import *

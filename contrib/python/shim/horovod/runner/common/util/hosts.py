from gorun.hosts import *

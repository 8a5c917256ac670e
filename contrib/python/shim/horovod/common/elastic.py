from gorun.elastic import *

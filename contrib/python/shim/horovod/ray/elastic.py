from gorun.ray.elastic import *

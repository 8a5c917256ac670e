from gorun.ray.elastic_v2 import *

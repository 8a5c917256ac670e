from gorun.ray.adapter import *

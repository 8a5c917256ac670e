from gorun.ray.worker import *

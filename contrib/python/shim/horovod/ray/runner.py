from gorun.ray.runner import *

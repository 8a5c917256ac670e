from gorun.ray.ray_logger import *

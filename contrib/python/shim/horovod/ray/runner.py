from gorun.ray.runner import *
from gorun.ray.runner import __getattr__

from gorun.jax import *
from gorun.jax import compression, elastic, functions, ops, optimizer
from horovod import __version__

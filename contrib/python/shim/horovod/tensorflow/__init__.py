from gorun.tensorflow import *
from gorun.tensorflow import __getattr__ as __getattr__
from gorun.tensorflow import compression, functions, mpi_ops, util
from horovod import __version__

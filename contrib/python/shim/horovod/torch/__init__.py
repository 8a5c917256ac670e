from gorun.torch import *
from gorun.torch import compression, elastic, functions, mpi_ops, optimizer, sync_batch_norm
from horovod import __version__

from gorun.torch import *
from gorun.torch import __version__, compression, elastic, functions, mpi_ops, optimizer, sync_batch_norm

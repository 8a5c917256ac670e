from gorun.torch.mpi_ops import *
from gorun.torch.mpi_ops import _basics

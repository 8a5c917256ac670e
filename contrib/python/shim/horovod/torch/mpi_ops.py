from gorun.torch.mpi_ops import *

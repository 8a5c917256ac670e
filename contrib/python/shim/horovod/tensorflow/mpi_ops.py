from gorun.tensorflow.mpi_ops import *
from gorun.tensorflow.mpi_ops import _basics

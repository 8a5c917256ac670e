from gorun.torch.optimizer import *
from gorun.torch.optimizer import _DistributedOptimizer

from gorun.torch.compression import *

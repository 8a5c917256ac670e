from gorun.torch.optimizer import *

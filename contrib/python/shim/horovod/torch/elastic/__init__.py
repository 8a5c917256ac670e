from gorun.torch.elastic import *

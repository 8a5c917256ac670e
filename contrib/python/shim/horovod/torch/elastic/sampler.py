from gorun.torch.elastic.sampler import *

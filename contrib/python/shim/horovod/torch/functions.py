from gorun.torch.functions import *

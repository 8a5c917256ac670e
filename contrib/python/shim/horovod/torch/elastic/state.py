from gorun.torch.elastic.state import *

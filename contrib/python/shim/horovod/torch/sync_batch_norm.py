from gorun.torch.sync_batch_norm import *

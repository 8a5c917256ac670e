from gorun.tensorflow.sync_batch_norm import *

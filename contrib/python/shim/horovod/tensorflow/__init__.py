from gorun.absent import tensorflow

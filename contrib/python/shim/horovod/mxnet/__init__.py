from gorun.absent import mxnet

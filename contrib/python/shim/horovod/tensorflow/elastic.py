from gorun.tensorflow.elastic import *

from gorun.tensorflow.compression import *

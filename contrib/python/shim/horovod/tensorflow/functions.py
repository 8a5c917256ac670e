from gorun.tensorflow.functions import *

from gorun.tensorflow.keras.elastic import *

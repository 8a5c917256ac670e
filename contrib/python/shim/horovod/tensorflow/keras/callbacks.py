from gorun.tensorflow.keras.callbacks import *

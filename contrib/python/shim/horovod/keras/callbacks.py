from gorun.keras.callbacks import *

from gorun.keras.elastic import *

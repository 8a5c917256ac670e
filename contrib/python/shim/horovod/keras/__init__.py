from gorun.absent import keras

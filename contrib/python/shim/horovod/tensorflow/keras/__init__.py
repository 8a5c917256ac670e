from gorun.tensorflow.keras import *
from horovod import __version__

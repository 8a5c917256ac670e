from gorun.keras import *
from horovod import __version__

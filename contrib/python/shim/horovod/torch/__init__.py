from gorun.torch import *
from gorun.torch import __version__

from gorun.features import *
from gorun.features import _cache

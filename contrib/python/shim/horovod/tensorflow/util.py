from gorun.tensorflow.util import *
from gorun.tensorflow.util import _cache, _executing_eagerly, _make_subgraph

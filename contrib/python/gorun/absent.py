"""Horovod's bindings that gorun does not have: importing one raises an error that names the alternatives."""

from __future__ import annotations

from typing import NoReturn

_FUNCTION = "horovod.run(function, hosts=...) runs a function on hosts by ssh and returns its results"
_INSTEAD = {
    "mxnet": "MXNet, which is at the end of its life: there are horovod.torch and horovod.tensorflow, and "
    "gorun.numpy adds up what asnumpy() returns",
    "data": "a compute service: tf.data has one, tf.data.experimental.service, and dataset.shard(hvd.size(), "
    "hvd.rank()) gives each rank its part",
    "spark": f"Spark: {_FUNCTION}",
}
_MODULES = {"data": "tensorflow.data"}


def __getattr__(name: str) -> NoReturn:
    if name in _INSTEAD:
        raise ImportError(f"horovod.{_MODULES.get(name, name)}: gorun has no binding for {_INSTEAD[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Horovod's bindings that gorun does not have: importing one raises an error that names the alternatives."""

from __future__ import annotations

from typing import NoReturn

_FUNCTION = "horovod.run(function, hosts=...) runs a function on hosts by ssh and returns its results"
_INSTEAD = {
    "tensorflow": "TensorFlow: tf.distribute finds its ranks by gorun --tf-config, gorun.numpy adds arrays",
    "keras": "Keras: tf.distribute finds its ranks by gorun --tf-config",
    "mxnet": "MXNet: gorun.numpy adds up what asnumpy() returns",
    "spark": f"Spark: {_FUNCTION}",
    "ray": f"Ray: {_FUNCTION}",
}


def __getattr__(name: str) -> NoReturn:
    if name in _INSTEAD:
        raise ImportError(f"horovod.{name}: gorun has no binding for {_INSTEAD[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

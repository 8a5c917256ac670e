"""Horovod's bindings that gorun does not have: importing one raises an error that names the alternatives."""

from __future__ import annotations

from typing import NoReturn

_INSTEAD = {
    "mxnet": "binding for MXNet, which is at the end of its life: there are horovod.torch and "
    "horovod.tensorflow, and gorun.numpy adds up what asnumpy() returns",
    "data": "binding for a compute service: tf.data has one, tf.data.experimental.service, and "
    "dataset.shard(hvd.size(), hvd.rank()) gives each rank its part",
    "spark_estimators": "estimators of Spark: horovod.spark.run(train, ...) trains on the executors, where "
    "train() reads its part of the data with pyarrow or petastorm, from Parquet files that a DataFrame wrote",
    "ray_train": "parts that ray.train.horovod is made of: Ray has ended its HorovodTrainer with Train V2. "
    "horovod.ray.RayExecutor(settings, num_workers=N) runs the same train_loop_per_worker",
}
_MODULES = {
    "data": "tensorflow.data",
    "spark_estimators": "spark.keras, .torch, .lightning and .common",
    "ray_train": "ray.runner.Coordinator, ray.utils and ray.strategy",
}


def __getattr__(name: str) -> NoReturn:
    if name in _INSTEAD:
        raise ImportError(f"horovod.{_MODULES.get(name, name)}: gorun has no {_INSTEAD[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

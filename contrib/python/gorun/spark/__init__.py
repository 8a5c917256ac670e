"""Functions on the ranks of a job in a Spark application, by Horovod's interface for Spark.

    import horovod.spark

    results = horovod.spark.run(train, args=(learning_rate,), num_proc=4)   # by rank

Tasks of Spark hold the slots of the ranks. One on each host starts gorun's daemon there, without ssh. The
executors need gorun and what the function imports. The ranks of run_elastic() come and go with executors.
"""

from __future__ import annotations

try:
    import pyspark as _pyspark  # noqa: F401
except ImportError as error:
    raise ImportError(f"horovod.spark needs PySpark: pip install pyspark ({error})") from None

from gorun.spark.runner import run, run_elastic

__all__ = ["run", "run_elastic"]

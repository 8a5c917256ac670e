"""What Keras needs of the framework that it runs on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from gorun import basics

BACKEND = keras.backend.backend()

if BACKEND == "tensorflow":
    from gorun.tensorflow.compression import Compression
    from gorun.tensorflow.mpi_ops import init
    from gorun.tensorflow.variables import broadcast_global_variables, eager_tensor
    from gorun.training import values

    values.tensor = eager_tensor
else:
    if BACKEND == "jax":
        from gorun.jax import Compression, init
    elif BACKEND == "torch":
        from gorun.torch.compression import Compression

        def init(comm: Sequence[int] | None = None, process_sets: Any = None) -> None:
            """Join the job; a second call does nothing. Without gorun this process is a world of one.

            comm is None or lists all ranks; pass process_sets to use some of them. Raises ValueError if
            joining fails.
            """
            basics.init(comm, process_sets)

    else:
        raise ImportError(f"gorun.keras: Keras runs on {BACKEND}; gorun has tensorflow, jax and torch")

    def broadcast_global_variables(root_rank: int) -> Any:
        """Raise RuntimeError: only graphs of TensorFlow 1 have global variables."""
        raise RuntimeError(
            "hvd.broadcast_global_variables() is for graphs of TensorFlow 1: use "
            "hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank)"
        )


__all__ = ["BACKEND", "Compression", "broadcast_global_variables", "init"]

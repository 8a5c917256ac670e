"""Processes of JAX find each other by its coordinator."""

import os

import jax
import numpy as np
from jax.experimental import multihost_utils

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(  # the address is one that it knows to look for
    num_processes=int(os.environ["JAX_NUM_PROCESSES"]), process_id=int(os.environ["JAX_PROCESS_ID"])
)
rank, size = jax.process_index(), jax.process_count()
total = multihost_utils.process_allgather(np.array([rank + 1.0], np.float32)).sum()
print(f"jax: rank {rank} of {size} has {total:g}")

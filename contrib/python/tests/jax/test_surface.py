"""Run by every rank: the names of gorun.jax and horovod.jax, and what jaxlib wants for --jax-engine."""

import inspect
import os
import re
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import horovod.jax as shim
import jaxlib

import gorun.jax as hvd
from gorun import native
from gorun import numpy as arrays

# Every public name, with its parameters; those of the same name elsewhere in gorun come first.
SIGNATURES = {
    "DistributedOptimizer": "optimizer name compression backward_passes_per_step op "
    "gradient_predivide_factor process_set",
    "allgather": "tensor name process_set",
    "allreduce": "tensor average name compression op prescale_factor postscale_factor process_set",
    "alltoall": "tensor splits name process_set",
    "broadcast": "tensor root_rank name process_set",
    "broadcast_optimizer_state": "state root_rank process_set",
    "broadcast_parameters": "params root_rank process_set",
    "broadcast_pytree": "tree root_rank process_set",
    "grad": "fun args has_aux options",
    "grouped_allgather": "tensors name process_set",
    "grouped_allreduce": "tensors average name compression op prescale_factor postscale_factor process_set",
    "grouped_reducescatter": "tensors name compression op process_set prescale_factor postscale_factor",
    "init": "comm process_sets",
    "reduce_gradients": "gradients name op compression gradient_predivide_factor process_set",
    "reducescatter": "tensor name compression op process_set prescale_factor postscale_factor",
    "value_and_grad": "fun argnums has_aux name op compression process_set options",
}
for name, parameters in SIGNATURES.items():
    assert list(inspect.signature(getattr(hvd, name)).parameters) == parameters.split(), name
for name in hvd.__all__:
    assert getattr(shim, name) is getattr(hvd, name) or name == "__version__", name
    assert (
        name in SIGNATURES
        or name in ("Compression", "elastic", "join")
        or getattr(hvd, name) is getattr(arrays, name)
    ), name
assert shim.__version__ == "0.28.1"
for name in ("JaxState", "ObjectState", "State", "init", "run", "shutdown"):
    assert hasattr(hvd.elastic, name), name

# jaxlib looks these up in the library that MPITRAMPOLINE_LIB names, and ends the program if one is missing.
folder = Path(jaxlib.__file__).parent
names: set[str] = set()
for file in (folder / "libjax_common.so", folder / "xla_extension.so"):
    if file.exists():
        text = file.read_bytes()
        names |= set(re.findall(rb"\0(MPIX?ABI_[A-Za-z0-9_]+|mpi(?:abi|wrapper)_version_[a-z]+)(?=\0)", text))
        names.add(b"mpiwrapper_export_fortran_constants_")
assert len(names) > 600, len(names)
library = native.library()
missing = sorted(name.decode() for name in names if not hasattr(library, name.decode()))
assert not missing, missing
print("all names are there")

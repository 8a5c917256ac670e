"""The functions of horovod.common.util: whether features are built in, and small arithmetic on ranks."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import sysconfig
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from gorun import basics
from gorun.exceptions import HorovodVersionMismatchError, get_version_mismatch_message

__all__ = [
    "EXTENSIONS", "HorovodVersionMismatchError", "ccl_built", "check_extension", "check_installed_version",
    "ddl_built", "env", "extension_available", "get_average_backwards_compatibility_fun", "get_ext_suffix",
    "get_version_mismatch_message", "gloo_built", "gpu_available", "is_iterable",
    "is_version_greater_equal_than", "mpi_built", "nccl_built", "num_rank_is_power_2", "split_list",
]  # fmt: skip

EXTENSIONS = ["tensorflow", "torch"]

T = TypeVar("T")

_cache = functools.cache  # programs import it from horovod.common.util


def check_extension(ext_name: str, ext_env_var: str = "", pkg_path: str = "", *args: Any) -> None:
    """Raise ImportError if the framework of an extension (horovod.torch, …) is not installed."""
    if not extension_available(ext_name):
        raise ImportError(f"Extension {ext_name} has not been built: its framework is not installed.")


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Report whether the framework of an extension is installed; nothing is ever compiled for it."""
    return importlib.util.find_spec(ext_base_name.rpartition(".")[2]) is not None


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Report whether torch or TensorFlow sees a GPU."""
    name = ext_base_name.rpartition(".")[2]
    if name not in ("tensorflow", "torch") or not extension_available(name):
        return False
    if name == "tensorflow":
        import tensorflow as tf

        return bool(tf.config.list_physical_devices("GPU"))
    import torch

    return torch.cuda.is_available()


def gloo_built(verbose: bool = False) -> bool:
    """Return True: the engine takes the place of Gloo."""
    return basics.gloo_built()


def mpi_built(verbose: bool = False) -> bool:
    """Return False: there is no MPI."""
    return basics.mpi_built()


def nccl_built(verbose: bool = False) -> int:
    """Return 0: NCCL is not used."""
    return basics.nccl_built()


def ddl_built(verbose: bool = False) -> bool:
    """Return False."""
    return basics.ddl_built()


def ccl_built(verbose: bool = False) -> bool:
    """Return False."""
    return basics.ccl_built()


def get_ext_suffix() -> str:
    """Return the file name suffix of this Python's compiled modules."""
    return sysconfig.get_config_var("EXT_SUFFIX") or ".so"


@contextmanager
def env(**kwargs: Any) -> Iterator[None]:
    """Set variables of the environment for a while; None leaves one as it is."""
    given = {name: value for name, value in kwargs.items() if value is not None}
    before = {name: os.environ.get(name) for name in given}
    os.environ.update(given)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def num_rank_is_power_2(num_rank: int) -> bool:
    """Report whether a number of ranks is a power of two."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(l: list[T], n: int) -> list[list[T]]:  # noqa: E741 (Horovod's name)
    """Cut a list into so many parts of nearly the same length."""
    size, extra = divmod(len(l), n)
    ends = [size * (i + 1) + min(i + 1, extra) for i in range(n)]
    return [l[start:end] for start, end in zip([0, *ends], ends)]


def is_iterable(x: Any) -> bool:
    """Report whether a value can be iterated over."""
    return isinstance(x, Iterable)


def check_installed_version(name: str, version: str, exception: Exception | None = None) -> None:
    """Do nothing: no extension is compiled, so none can be for another version of its framework."""


def is_version_greater_equal_than(ver: str, target: str) -> bool:
    """Compare versions such as 1.13.0+cpu by their numbers."""
    return _numbers(ver) >= _numbers(target)


def _numbers(version: str) -> list[int]:
    numbers = [int(digits) for digits in re.findall(r"\d+", version.split("+")[0])[:3]]
    return numbers + [0] * (3 - len(numbers))


def get_average_backwards_compatibility_fun(reduce_ops: Any) -> Any:
    """Return the function that finds the reduction from the arguments op and average."""

    def choose(op: int | None, average: bool | None) -> int:
        if op is not None and average is not None:
            raise ValueError("The op parameter supersedes average. Please provide only one of them.")
        if op is not None:
            return op
        if average is None:
            return reduce_ops.Average
        text = "Parameter `average` has been replaced with `op` and will be removed in v1.0"
        warnings.warn(text, DeprecationWarning, stacklevel=2)
        return reduce_ops.Average if average else reduce_ops.Sum

    return choose

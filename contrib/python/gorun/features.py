"""What scripts ask of horovod.common.util: is this and that built in, and small arithmetic on ranks."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable
from typing import Any, TypeVar

T = TypeVar("T")


def check_extension(ext_name: str, *_: Any) -> None:
    """Raise ImportError if the framework of an extension (horovod.torch, …) is not installed."""
    if not extension_available(ext_name):
        raise ImportError(f"Extension {ext_name} has not been built: its framework is not installed.")


def extension_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Report whether the framework of an extension is installed; nothing is ever compiled for it."""
    return importlib.util.find_spec(ext_base_name.rpartition(".")[2]) is not None


def gpu_available(ext_base_name: str, verbose: bool = False) -> bool:
    """Report whether torch sees a GPU."""
    if ext_base_name.rpartition(".")[2] != "torch" or not extension_available(ext_base_name):
        return False
    import torch

    return torch.cuda.is_available()


def num_rank_is_power_2(num_rank: int) -> bool:
    """Report whether a number of ranks is a power of two."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(items: list[T], parts: int) -> list[list[T]]:
    """Cut a list into so many parts of nearly the same length."""
    size, extra = divmod(len(items), parts)
    ends = [size * (i + 1) + min(i + 1, extra) for i in range(parts)]
    return [items[start:end] for start, end in zip([0, *ends], ends)]


def is_iterable(value: Any) -> bool:
    """Report whether a value can be iterated over."""
    return isinstance(value, Iterable)

"""Broadcasts of models, optimizers and objects, and the gathering of objects."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import torch

from gorun import basics, collectives
from gorun.objects import allgather_object, broadcast_object
from gorun.process_sets import ProcessSet, global_process_set
from gorun.torch.memory import Torch
from gorun.torch.optimizer import _DistributedOptimizer

__all__ = ["allgather_object", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters"]


def broadcast_parameters(
    params: Any, root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Overwrite tensors with the tensors of rank root_rank. All ranks of the process set must call this.

    params: a state_dict() or other dict of tensors, named_parameters(), or tensors in the same order on all
    ranks. Values that are not tensors are left alone. Raises ValueError for other types of params.
    """
    if isinstance(params, dict):
        params = [params[name] for name in sorted(params)]
    elif isinstance(params, (torch.Tensor, torch.nn.Module, str)) or not isinstance(params, Iterable):
        raise ValueError(f"invalid params of type: {type(params)}")
    else:
        params = [item[1] if isinstance(item, tuple) else item for item in params]
    tensors = [p for p in params if isinstance(p, torch.Tensor)]
    collectives.broadcast_all(Torch(), tensors, root_rank, process_set)


class _Tensor:
    """Stands for a tensor in a state that is sent without its tensors."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        self.shape = shape
        self.dtype = dtype


def broadcast_optimizer_state(
    optimizer: torch.optim.Optimizer,
    root_rank: int,
    model: torch.nn.Module | None = None,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Give every rank's optimizer the state and the options (learning rate…) of the root's optimizer.

    The state may have any structure and may be empty; the function takes no step to fill it. As in Horovod,
    an optimizer without a state gets zero gradients for parameters that have none. They are sparse for
    SparseAdam and for the sparse embeddings of model.
    """
    is_root = basics.rank() == root_rank
    tensors: list[torch.Tensor] = []
    mine = optimizer.state_dict()
    if not mine.get("state"):
        _zero_gradients(optimizer, model)
    outline = _outline(mine, tensors) if is_root else None
    outline = broadcast_object(outline, root_rank, process_set=process_set)
    if not is_root:
        state = _rebuild(outline, tensors)
    collectives.broadcast_all(Torch(), tensors, root_rank, process_set)
    if not is_root:
        # torch would copy tensors that only this optimizer has.
        for tensor in tensors:
            tensor.__deepcopy__ = functools.partial(_itself, tensor)
        # A step that is under way continues, as at the root, which loads nothing.
        distributed = isinstance(optimizer, _DistributedOptimizer)
        (super(_DistributedOptimizer, optimizer) if distributed else optimizer).load_state_dict(state)
        for tensor in tensors:
            del tensor.__deepcopy__


def _zero_gradients(optimizer: torch.optim.Optimizer, model: torch.nn.Module | None) -> None:
    """Give the optimizer's parameters gradients for scripts that look at them before backward()."""
    modules = () if model is None else model.modules()
    embeddings = [module for module in modules if isinstance(module, torch.nn.Embedding) and module.sparse]
    sparse = {id(parameter) for module in embeddings for parameter in module.parameters()}
    for parameter in [parameter for group in optimizer.param_groups for parameter in group["params"]]:
        if parameter.requires_grad and parameter.grad is None:
            zeros = torch.zeros_like(parameter)
            if isinstance(optimizer, torch.optim.SparseAdam) or id(parameter) in sparse:
                zeros = zeros.to_sparse(1)
            parameter.grad = zeros


def _itself(tensor: torch.Tensor, _memo: dict[int, Any]) -> torch.Tensor:
    return tensor


def _outline(value: Any, tensors: list[torch.Tensor]) -> Any:
    """Return a copy of a state with stand-ins for the tensors, and append those to a list."""
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach())
        return _Tensor(tuple(value.shape), value.dtype)
    return _map(value, lambda item: _outline(item, tensors))


def _rebuild(value: Any, tensors: list[torch.Tensor]) -> Any:
    """Return a copy of an outline with new tensors, and append those to a list."""
    if isinstance(value, _Tensor):
        tensors.append(torch.empty(value.shape, dtype=value.dtype))
        return tensors[-1]
    return _map(value, lambda item: _rebuild(item, tensors))


def _map(value: Any, convert: Any) -> Any:
    if isinstance(value, dict):
        return {key: convert(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(convert, value))
    if isinstance(value, (list, tuple)):
        return type(value)(convert(item) for item in value)
    return value

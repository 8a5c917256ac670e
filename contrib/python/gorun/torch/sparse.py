"""Sums of sparse tensors: the non-zeros of all ranks are gathered and added up."""

from __future__ import annotations

import torch

# Indices come from other ranks. Older torch always checks them against the shape, newer torch if asked to.
_CHECKED = {"check_invariants": True} if hasattr(torch.sparse, "check_sparse_tensor_invariants") else {}


def rows(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return indices and values of the non-zeros, one row each. Sparse tensors have indices in columns."""
    tensor = tensor.detach().coalesce()
    return [tensor.indices().t(), tensor.values()]


def total(indices: torch.Tensor, values: torch.Tensor, shape: torch.Size, divisor: int) -> torch.Tensor:
    """Return the sum of all ranks' rows, divided, as a sparse tensor."""
    whole = torch.sparse_coo_tensor(indices.t(), values, shape, **_CHECKED).coalesce()
    return whole / divisor if divisor != 1 else whole

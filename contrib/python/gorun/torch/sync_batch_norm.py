"""Batch normalisation over the batches of all ranks, on any device."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from gorun.torch import mpi_ops


class SyncBatchNorm(_BatchNorm):
    """torch.nn.BatchNorm1d, 2d or 3d with the mean and variance of all ranks' batches together.

    Ranks may have batches of different size, or none. One collective forward, and one backward.
    """

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Normalise a tensor of shape (batch, channels, …)."""
        self._check_input_dim(input)
        in_batch = self.training or self.running_mean is None
        if not in_batch or mpi_ops.size() == 1:
            return super().forward(input)
        output, mean, variance, count = _Normalize.apply(input, self.weight, self.bias, self.eps)
        if self.training and self.track_running_stats:
            self._update(mean, variance * count / (count - 1).clamp(min=1))
        return output

    @torch.no_grad()
    def _update(self, mean: torch.Tensor, variance: torch.Tensor) -> None:
        self.num_batches_tracked.add_(1)
        momentum = 1.0 / self.num_batches_tracked.item() if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
        self.running_var.lerp_(variance.to(self.running_var.dtype), momentum)


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
    ) -> Any:
        exact = torch.float64 if x.dtype == torch.float64 else torch.float32
        channels, others = x.shape[1], [i for i in range(x.dim()) if i != 1]
        wide = x.to(exact)
        count = x.numel() // max(channels, 1)
        mean = wide.mean(others) if count else wide.new_zeros(channels)
        spread = (wide - _along(mean, x)).square().sum(others)

        # Means and variances are combined rather than sums of squares, which would lose precision.
        mine = torch.cat([wide.new_tensor([count]), mean, spread]).unsqueeze(0)
        counts, means, spreads = mpi_ops.allgather(mine).split([1, channels, channels], 1)
        total = counts.sum()
        mean = (counts * means).sum(0) / total
        variance = (spreads + counts * (means - mean).square()).sum(0) / total

        inverse = torch.rsqrt(variance + eps)
        normal = (wide - _along(mean, x)) * _along(inverse, x)
        output = normal if weight is None else normal * _along(weight.to(exact), x)
        output = output if bias is None else output + _along(bias.to(exact), x)
        ctx.save_for_backward(normal, inverse, weight, total)
        ctx.others = others
        ctx.mark_non_differentiable(mean, variance, total)
        return output.to(x.dtype), mean, variance, total

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor, *_: Any) -> Any:
        normal, inverse, weight, total = ctx.saved_tensors
        wide = grad.to(normal.dtype)
        sums = torch.stack([wide.sum(ctx.others), (wide * normal).sum(ctx.others)])
        grad_bias, grad_weight = sums
        mean_grad, mean_along = mpi_ops.allreduce(sums, op=mpi_ops.Sum) / total
        grad_x = wide - _along(mean_grad, grad) - normal * _along(mean_along, grad)
        grad_x = grad_x * _along(inverse if weight is None else inverse * weight.to(inverse.dtype), grad)
        affine = weight is not None
        return (
            grad_x.to(grad.dtype),
            grad_weight.to(weight.dtype) if affine else None,
            grad_bias.to(weight.dtype) if affine and ctx.needs_input_grad[2] else None,
            None,
        )


def _along(values: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Return one value per channel, in a shape that broadcasts with x."""
    return values.reshape(1, -1, *[1] * (x.dim() - 2))

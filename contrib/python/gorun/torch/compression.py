"""Gradient compression: the form in which gradients are sent."""

from __future__ import annotations

from typing import Any

import torch


class Compressor:
    """Converts a tensor to the form that is sent, and back. ctx is passed from compress() to decompress()."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the tensor to send and a context."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the received tensor in the form that compress() got it."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor


class _CastCompressor(Compressor):
    """Sends floating-point tensors in a narrower type."""

    wire: torch.dtype

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor.to(cls.wire) if tensor.dtype.is_floating_point else tensor, tensor.dtype

    @classmethod
    def decompress(cls, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor.to(ctx) if ctx.is_floating_point else tensor


class FP16Compressor(_CastCompressor):
    """Sends floating-point tensors as float16."""

    wire = torch.float16


class BF16Compressor(_CastCompressor):
    """Sends floating-point tensors as bfloat16: less exact than float16, with the range of float32."""

    wire = torch.bfloat16


class Compression:
    """The available compressors."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


def wire_type(compression: Any, dtype: torch.dtype) -> torch.dtype | None:
    """Return the type in which gradients of dtype are sent, or None for a compressor of the user's own."""
    if compression is NoneCompressor:
        return dtype
    if isinstance(compression, type) and issubclass(compression, _CastCompressor):
        return compression.wire if dtype.is_floating_point else dtype
    return None

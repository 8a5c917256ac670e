"""Gradient compression: the form in which gradients are sent."""

from __future__ import annotations

from typing import Any

import torch

from gorun.compression import CastCompressor, Compressor, NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class _CastCompressor(CastCompressor):
    @staticmethod
    def floating(dtype: Any) -> bool:
        return dtype.is_floating_point

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        return tensor.to(dtype)


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

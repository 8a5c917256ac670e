"""Gradient compression: the form in which gradients are sent."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from gorun.compression import CastCompressor, Compressor, NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class _CastCompressor(CastCompressor):
    @staticmethod
    def floating(dtype: Any) -> bool:
        return jnp.issubdtype(dtype, jnp.floating)

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        return jnp.asarray(tensor, dtype)


class FP16Compressor(_CastCompressor):
    """Sends floating-point tensors as float16."""

    wire = jnp.float16


class BF16Compressor(_CastCompressor):
    """Sends floating-point tensors as bfloat16: less exact than float16, with the range of float32."""

    wire = jnp.bfloat16


class Compression:
    """The available compressors."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor

"""Gradient compression: the form in which gradients are sent."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp


class Compressor:
    """Converts an array to the form that is sent, and back. ctx is passed from compress() to decompress()."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return the array to send and a context."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the received array in the form that compress() got it."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends arrays as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


class _CastCompressor(Compressor):
    """Sends floating-point arrays in a narrower type."""

    wire: Any

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        dtype = jnp.asarray(tensor).dtype
        return (
            (jnp.asarray(tensor, cls.wire), dtype) if jnp.issubdtype(dtype, jnp.floating) else (tensor, None)
        )

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        return tensor if ctx is None else tensor.astype(ctx)


class FP16Compressor(_CastCompressor):
    """Sends floating-point arrays as float16."""

    wire = jnp.float16


class BF16Compressor(_CastCompressor):
    """Sends floating-point arrays as bfloat16: less exact than float16, with the range of float32."""

    wire = jnp.bfloat16


class Compression:
    """The available compressors."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor

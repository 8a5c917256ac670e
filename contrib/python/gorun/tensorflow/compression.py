"""Gradient compression: the form in which gradients are sent."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


class Compressor:
    """Converts a tensor to the form that is sent, and back. ctx is passed from compress() to decompress()."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return the tensor to send and a context."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the received tensor in the form that compress() got it."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Sends tensors as they are."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        return tensor


class _CastCompressor(Compressor):
    """Sends floating-point tensors in a narrower type."""

    wire: tf.DType

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        return tf.cast(tensor, cls.wire) if tensor.dtype.is_floating else tensor, tensor.dtype

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        return tf.cast(tensor, ctx) if ctx.is_floating else tensor


class FP16Compressor(_CastCompressor):
    """Sends floating-point tensors as float16."""

    wire = tf.float16


class BF16Compressor(_CastCompressor):
    """Sends floating-point tensors as bfloat16: less exact than float16, with the range of float32."""

    wire = tf.bfloat16


class Compression:
    """The available compressors."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor

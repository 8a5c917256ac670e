"""Gradient compression: the form in which gradients are sent."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from gorun.compression import CastCompressor, Compressor, NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class _CastCompressor(CastCompressor):
    @staticmethod
    def floating(dtype: Any) -> bool:
        return dtype.is_floating

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        return tf.cast(tensor, dtype)


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

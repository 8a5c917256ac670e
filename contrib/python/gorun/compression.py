"""Gradient compression: the form in which gradients are sent. A framework adds how it casts."""

from __future__ import annotations

from typing import Any


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


class CastCompressor(Compressor):
    """Sends floating-point tensors in a narrower type."""

    wire: Any  # this type

    @staticmethod
    def floating(dtype: Any) -> bool:
        """Report whether numbers of a type have a fraction."""
        raise NotImplementedError

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        """Return a tensor in another type."""
        raise NotImplementedError

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        return cls.cast(tensor, cls.wire) if cls.floating(tensor.dtype) else tensor, tensor.dtype

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        return cls.cast(tensor, ctx) if cls.floating(ctx) else tensor

"""In which loop of the script a call is made.

A script whose commit() is in the loop that also calls optimizer.step() can go on in the middle of that loop.
One whose commit() comes after the loop may only be able to begin the loop anew.
"""

from __future__ import annotations

import ast
import linecache
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any

_LOOPS = ast.For, ast.AsyncFor, ast.While
_COMPREHENSIONS = ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp
_FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef

_blocks: dict[str, list[tuple[int, int, bool]]] = {}  # by file: first and last line, and whether it is a loop
_parses = threading.Lock()  # threads that parse at once fail in CPython 3.11
_found: dict[tuple[CodeType, int], Loop | None] = {}  # by line


@dataclass(frozen=True)
class Loop:
    """The body of a loop."""

    code: CodeType  # of the function that it is in
    first: int  # line
    last: int


def around(frame: FrameType | None) -> Loop | None:
    """Return the innermost loop of the script that a frame, or a caller of it, is in."""
    return next((loop for loop in map(_innermost, _script(frame)) if loop is not None), None)


def within(loop: Loop | None, frame: FrameType | None) -> bool:
    """Report whether a frame, or a caller of it, is in a loop."""
    return loop is not None and any(
        f.f_code is loop.code and loop.first <= f.f_lineno <= loop.last for f in _script(frame)
    )


def _script(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames of the script, without those of gorun and torch."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in ("gorun", "horovod", "torch"):
            yield frame
        frame = frame.f_back


def _innermost(frame: FrameType) -> Loop | None:
    code, line = frame.f_code, frame.f_lineno
    if (code, line) not in _found:
        inside = [block for block in _read(frame) if block[0] <= line <= block[1]]
        first, last, loops = min(inside, key=lambda block: block[1] - block[0], default=(0, 0, False))
        _found[code, line] = Loop(code, first, last) if loops and code.co_name != "<lambda>" else None
    return _found[code, line]


def _read(frame: FrameType) -> list[tuple[int, int, bool]]:
    """Return the blocks of a frame's file: nothing without its source."""
    name = frame.f_code.co_filename
    if name not in _blocks:
        linecache.lazycache(name, frame.f_globals)
        try:
            with _parses:
                nodes = list(ast.walk(ast.parse("".join(linecache.getlines(name)))))
        except (SyntaxError, ValueError, SystemError):  # the last if another thread of the script parses, too
            nodes = []
        _blocks[name] = [block for block in map(_block, nodes) if block is not None]
    return _blocks[name]


def _block(node: Any) -> tuple[int, int, bool] | None:
    if isinstance(node, _LOOPS):
        return node.body[0].lineno, node.body[-1].end_lineno, True
    if isinstance(node, (*_COMPREHENSIONS, *_FUNCTIONS)):
        return node.lineno, node.end_lineno, isinstance(node, _COMPREHENSIONS)
    return None

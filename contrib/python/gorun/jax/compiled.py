"""Operations inside of compiled programs: what jit, grad and vmap trace.

On CPUs they are custom calls that XLA makes into libgorun (contrib/c/xla.c), and none of its threads waits.
On other devices they are callbacks to Python, through host memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from gorun import basics, errors, loaders, native
from gorun import numpy as eager
from gorun.collectives import Adasum, Average, Sum
from gorun.counters import counters
from gorun.exceptions import HorovodInternalError
from gorun.process_sets import ProcessSet

KINDS = ("allreduce", "allgather", "broadcast", "alltoall", "reducescatter")
TARGET = "gorun_"
MARK = "gorun "  # begins the text of an error of libgorun, before its code


def init(comm: Sequence[int] | None = None, process_sets: Any = None) -> None:
    """Join the job; a second call does nothing. Without gorun this process is a world of one.

    comm is None or lists all ranks; pass process_sets to use some of them. Raises ValueError if joining
    fails.
    """
    basics.init(comm, process_sets)
    attach()
    loaders.count()


@functools.cache
def attach() -> None:
    """Have compiled programs call the library."""
    _register(native.attach())


def _register(library: Any) -> None:
    for kind in KINDS:
        handler = getattr(library, f"gorun_xla_{kind}")
        jax.ffi.register_ffi_target(TARGET + kind, jax.ffi.pycapsule(handler), platform="cpu")


def failure_of(error: BaseException) -> HorovodInternalError | None:
    """Return what an error of a compiled program means, None if it is not gorun's."""
    before, mark, rest = str(error).partition(f": {MARK}")
    code, colon, text = rest.partition(": ")
    if not (mark and colon and code.isdigit()):
        return None
    cause = errors.error(int(code), text)
    failure = HorovodInternalError(text)
    failure.__cause__ = cause
    return failure


class Call(NamedTuple):
    """One operation of a program. It is the same on all ranks, apart from the process sets they are in."""

    kind: str
    name: str
    process_set: ProcessSet
    op: int = Sum
    prescale: float = 1.0
    postscale: float = 1.0
    root: int = 0
    step: bool = False  # whether it stands for a step of the training

    def of(self, kind: str, **changes: Any) -> Call:
        """Return the operation that this one's gradient takes."""
        return self._replace(kind=kind, name=f"{self.name}.gradient", step=False, **changes)


def named(kind: str, name: str | None, process_set: ProcessSet) -> str:
    """Return the name of an operation in a program: the user's, or a number, by the order of tracing."""
    return basics.world().name(f"jit.{kind}", name, process_set.group())


def call(call: Call, arrays: Sequence[Any]) -> list[Any]:
    """Do an operation on arrays; several at once of one type only, for allreduce."""
    return list(_linear.bind(*arrays, call=call))


_linear = Primitive("gorun")
_linear.multiple_results = True


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, call: Call) -> tuple[Any, Any]:
    """Do the operation on tangents too: it is linear. Adasum is not; its tangents go by Horovod's rule."""
    if not jnp.issubdtype(primals[0].dtype, jnp.inexact):
        results = _linear.bind(*primals, call=call)
        return results, [ad.Zero.from_primal_value(result) for result in results]
    if call.kind in ("allreduce", "reducescatter") and call.op not in (Average, Sum, Adasum):
        raise NotImplementedError(f"{call.kind}: only averages, sums and Adasum have a gradient")
    moved = [ad.instantiate_zeros(tangent) for tangent in tangents]
    also = call._replace(name=f"{call.name}.tangent", step=False)
    return _linear.bind(*primals, call=call), _linear.bind(*moved, call=also)


def _transpose(gradients: Sequence[Any], *arrays: Any, call: Call) -> list[Any]:
    given = tuple(ad.instantiate_zeros(gradient) for gradient in gradients)
    wanted = _GRADIENTS[call.kind](call, given)
    return [one if ad.is_undefined_primal(array) else None for one, array in zip(wanted, arrays)]


def _batch(arrays: Sequence[Any], dims: Sequence[Any], *, call: Call) -> tuple[Any, Any]:
    """Do a batch as one larger array; Adasum, which weighs whole arrays, one by one."""
    count = next(array.shape[dim] for array, dim in zip(arrays, dims) if dim is not None)
    front = [
        jnp.broadcast_to(array, (count, *array.shape)) if dim is None else jnp.moveaxis(array, dim, 0)
        for array, dim in zip(arrays, dims)
    ]
    if call.kind == "allreduce" and call.op == Adasum:
        results = jax.lax.map(lambda each: _linear.bind(*each, call=call), front)
    elif call.kind in ("allreduce", "broadcast"):
        results = _linear.bind(*front, call=call)
    else:  # which look at the first dimension
        for array in front:
            _shape(call, array.shape[1:])  # refuse what has none
        rows = _linear.bind(*(jnp.moveaxis(array, 0, -1) for array in front), call=call)
        results = [jnp.moveaxis(array, -1, 0) for array in rows]
    return results, [0] * len(results)


@_linear.def_impl
def _now(*arrays: Any, call: Call) -> list[Any]:
    return list(_bind(call, arrays))


@_linear.def_abstract_eval
def _abstract(*arrays: Any, call: Call) -> list[Any]:
    return [array.update(shape=_shape(call, array.shape), weak_type=False) for array in arrays]


ad.primitive_jvps[_linear] = _jvp
ad.primitive_transposes[_linear] = _transpose
batching.primitive_batchers[_linear] = _batch
mlir.register_lowering(_linear, mlir.lower_fun(_now, multiple_results=True))

# Gradients are Horovod's: the loss counts as the average of all ranks' losses, other than in a sum.


def _of_allreduce(call: Call, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
    return _linear.bind(*gradients, call=call.of("allreduce"))


def _of_allgather(call: Call, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
    return _linear.bind(*gradients, call=call.of("reducescatter", op=Average))


def _of_broadcast(call: Call, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
    reduced = _linear.bind(*gradients, call=call.of("allreduce", op=Average))
    # Not zeros: a program that does not need what is reduced would leave the operation out.
    return tuple(one * jnp.asarray(basics.rank() == call.root, one.dtype) for one in reduced)


def _of_alltoall(call: Call, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
    return _linear.bind(*gradients, call=call.of("alltoall"))


def _of_reducescatter(call: Call, gradients: tuple[Any, ...]) -> tuple[Any, ...]:
    factor = call.prescale * call.postscale
    if call.op == Sum:
        factor *= call.process_set.size()
    gathering = call.of("allgather", op=Sum, prescale=1.0, postscale=1.0)
    scaled = (gradient * jnp.asarray(factor, gradient.dtype) for gradient in gradients)
    return _linear.bind(*scaled, call=gathering)


_GRADIENTS: dict[str, Callable[[Call, tuple[Any, ...]], tuple[Any, ...]]] = {
    "allreduce": _of_allreduce,
    "allgather": _of_allgather,
    "broadcast": _of_broadcast,
    "alltoall": _of_alltoall,
    "reducescatter": _of_reducescatter,
}


def _shape(call: Call, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a result."""
    members = call.process_set.size()
    if call.kind == "allgather":
        return (shape[0] * members, *shape[1:])
    if call.kind == "reducescatter":
        each, more = divmod(shape[0], members)
        if not each:  # XLA leaves out what has an empty result, and so would some of the ranks
            raise ValueError(
                f"reducescatter: inside of jit {shape[0]} rows must be one or more for each of {members}"
            )
        return (each + (call.process_set.rank() < more), *shape[1:])
    if call.kind == "alltoall" and shape[0] % members:
        raise ValueError(
            f"alltoall: inside of jit {shape[0]} rows must be a multiple of {members} ranks, as many for each"
        )
    return shape


def _bind(call: Call, arrays: Sequence[Any]) -> tuple[Any, ...]:
    """Do an operation, now or in the program that is being made."""
    if not any(isinstance(array, jax.core.Tracer) for array in arrays):
        return tuple(jnp.asarray(array) for array in _in_python(call, *arrays))  # by grad without jit
    shapes = [jax.ShapeDtypeStruct(_shape(call, array.shape), array.dtype) for array in arrays]
    on_host = functools.partial(_call_back, call, shapes)
    attach()
    return tuple(
        jax.lax.platform_dependent(
            *arrays, cpu=functools.partial(_call_native, call, shapes), default=on_host
        )
    )


def _call_native(call: Call, shapes: Sequence[Any], *arrays: Any) -> list[Any]:
    members = call.process_set.size() if call.kind in ("allgather", "alltoall") else 0
    # One more result, unused: jaxlib 0.5 cannot compile a program that returns all of a custom call.
    shapes = [*shapes, jax.ShapeDtypeStruct((1,), jnp.uint8)]
    # XLA copies an input that is still needed.
    in_place = {i: i for i in range(len(arrays))} if call.kind in ("allreduce", "broadcast") else None
    do = jax.ffi.ffi_call(TARGET + call.kind, shapes, input_output_aliases=in_place)
    results = do(
        *arrays, name=call.name, op=np.int64(call.op), group=np.int64(call.process_set.group()),
        root=np.int64(call.root), members=np.int64(members), prescale=np.float64(call.prescale),
        postscale=np.float64(call.postscale), step=np.int64(call.step),
    )  # fmt: skip
    return list(results[:-1])


def _call_back(call: Call, shapes: Sequence[Any], *arrays: Any) -> list[Any]:
    do = functools.partial(_called_back, call)
    return jax.pure_callback(do, shapes, *arrays)


def _in_python(call: Call, *arrays: Any) -> list[np.ndarray]:
    arrays = tuple(np.asarray(array) for array in arrays)
    common: dict[str, Any] = {"name": call.name, "process_set": call.process_set}
    scaled = {"op": call.op, "prescale_factor": call.prescale, "postscale_factor": call.postscale, **common}
    if call.step:
        counters.step()
    if call.kind == "allreduce":
        return eager.grouped_allreduce(arrays, **scaled)
    if call.kind == "allgather":
        return [eager.allgather(arrays[0], **common)]
    if call.kind == "broadcast":
        return [eager.broadcast(arrays[0], call.root, **common)]
    if call.kind == "alltoall":
        return [eager.alltoall(arrays[0], **common)]
    return [eager.reducescatter(arrays[0], **scaled)]


def _called_back(call: Call, *arrays: Any) -> list[np.ndarray]:
    try:
        return _in_python(call, *arrays)
    except HorovodInternalError as error:
        raise RuntimeError(f"{call.kind}: {MARK}{errors.code_of(error.__cause__)}: {error}") from error

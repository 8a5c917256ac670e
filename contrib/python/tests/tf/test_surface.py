"""Every name of Horovod's TensorFlow and Keras interfaces, with its parameters, and where it is tested.

One process. stock_tensorflow.json has what these modules of Horovod 0.28.1 define; see test_surface.py.
"""

import ast
import importlib
import inspect
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import gorun.tensorflow  # noqa: E402

HERE = Path(__file__).resolve().parent

INTERNAL = "a part of Horovod's own machinery"
IMPORTED = "another module's, which this one happens to import"
EXCEPTIONS = {
    "tensorflow.mpi_ops": {"MPI_LIB": "the compiled extension, of which there is none"},
    "tensorflow.keras": {"is_version_greater_equal_than": IMPORTED},
    "tensorflow.keras.callbacks": {"is_version_greater_equal_than": IMPORTED},
    "tensorflow.keras.elastic": {"TensorFlowKerasState": IMPORTED},
    "keras.elastic": {"TensorFlowKerasState": IMPORTED},
    "tensorflow.functions": dict.fromkeys(
        "ProcessSet allgather broadcast broadcast_ global_process_set rank size".split(), IMPORTED
    ),
    "tensorflow.elastic": dict.fromkeys(
        """HorovodInternalError broadcast_object broadcast_object_fn broadcast_variables init
        notification_manager rank shutdown""".split(), IMPORTED,
    ),
    "tensorflow.sync_batch_norm": dict.fromkeys(["Sum", "rank", "size"], IMPORTED),
    "tensorflow.gradient_aggregation": {
        **dict.fromkeys(["apply_op_to_not_none_tensors", "get_not_none_from_list"], INTERNAL),
        **dict.fromkeys(["global_process_set", "size_op"], IMPORTED),
    },
    "tensorflow.gradient_aggregation_eager": dict.fromkeys(["global_process_set", "size_op"], IMPORTED),
}  # fmt: skip

# Modules that the test programs do not name: what is in them is tested by what they are for.
BY_OTHERS = (
    "tensorflow.compression", "tensorflow.gradient_aggregation", "tensorflow.gradient_aggregation_eager",
)  # fmt: skip


def parameters(text):
    return ast.parse(f"def f({text}): 0").body[0].args


def difference(value, text, module):
    """Say how the parameters of value are not those of the text; more, with defaults, may follow."""
    given = parameters(text)
    names = [arg.arg for arg in given.args if arg.arg != "self"]
    defaults = [None] * (len(given.args) - len(given.defaults)) + given.defaults
    defaults = [d for arg, d in zip(given.args, defaults) if arg.arg != "self"]
    ours = [p for p in inspect.signature(value).parameters.values() if p.name != "self"]
    plain = [p for p in ours if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    if given.vararg and not any(p.kind == p.VAR_POSITIONAL for p in ours) and not plain:
        return "has no variable parameters"
    for name, default, mine in zip(names, defaults, plain):
        if name != mine.name:
            return f"has {mine.name} instead of {name}"
        if default is not None:
            wanted = eval(ast.unparse(default), {**vars(gorun.tensorflow), **vars(module)})
            if mine.default != wanted:
                return f"has {name}={mine.default!r} instead of {wanted!r}"
    wild = any(p.kind == p.VAR_KEYWORD for p in ours)
    return "" if len(plain) >= len(names) or wild else f"lacks {names[len(plain) :]}"


def main():
    wrong = []
    programs = [path for path in HERE.glob("*.py") if path.name != Path(__file__).name]
    programs += [*HERE.parent.glob("*.py"), *HERE.parents[2].glob("examples/*.py")]
    sources = "".join(path.read_text() for path in programs)
    for name, stock in json.loads((HERE / "stock_tensorflow.json").read_text()).items():
        module = importlib.import_module(f"horovod.{name}")
        for public, text in stock.items():
            owner, _, member = public.partition(".")
            if owner in EXCEPTIONS.get(name, {}) or owner.startswith("_"):
                continue
            if not hasattr(module, owner):
                wrong.append(f"horovod.{name}.{owner} is missing")
                continue
            value = getattr(module, owner)
            if member and text and not hasattr(value, member):
                wrong.append(f"horovod.{name}.{public} is missing")
            elif text and not text.startswith("class of"):
                error = difference(getattr(value, member) if member else value, text, module)
                wrong += [f"horovod.{name}.{public} {error}"] if error else []
            if text and not member and name not in BY_OTHERS and f".{owner}" not in sources:
                wrong.append(f"horovod.{name}.{owner} is in no test")
    import horovod.tensorflow as hvd

    assert hvd.__version__ == "0.28.1"
    for absent in "horovod.mxnet", "horovod.tensorflow.data", "horovod.tensorflow.data.compute_service":
        try:
            importlib.import_module(absent)
            wrong.append(f"{absent} can be imported")
        except ImportError as error:
            assert "tf.data" in str(error) or "end of its life" in str(error), error
    assert not wrong, "\n".join(wrong)
    print("surface: ok", file=sys.stdout)


if __name__ == "__main__":
    main()

"""Run the programs over TensorFlow and Keras, and the examples, in jobs on this host.

    python3 run.py PYTHON [PART...]

PYTHON has TensorFlow, or Keras 3 on another backend. Prints a line for each job, ends with the first one that
fails, and shows its output.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
HERE = Path(__file__).resolve().parent
EXAMPLES = ROOT / "contrib" / "examples"
ELASTIC = ("--min-np", "1", "-H", "localhost:3")


def np(count):
    """Return the flags of a job of so many ranks."""
    return "-np", str(count), "--no-tag-output"


def installed(python, name):
    """Report whether a Python has a module."""
    find = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({name!r}) is None)"
    return subprocess.run([python, "-c", find]).returncode == 0


def jobs(python):
    """Return name, flags, program, environment, what it must print, and how often."""
    on = [
        (f"keras on {backend}{of}", np(2), program, {"KERAS_BACKEND": backend}, ": ok", 2)
        for backend in ("jax", "torch") if installed(python, backend)
        for of, program in (("", ["test_keras.py"]), (", counting", ["test_counting.py", "keras"]))
    ]  # fmt: skip
    fit, killed = ["elastic_fit.py"], r"done rank . of 2: epochs 4 worlds \[3, 2\]"
    on += [
        (f"keras on {backend}, a rank dies", ELASTIC, fit, {"KERAS_BACKEND": backend}, killed, 2)
        for backend in ("jax", "torch") if installed(python, backend)
    ]  # fmt: skip
    if not installed(python, "tensorflow"):
        return on
    keras_3 = installed(python, "tf_keras")
    table = [("surface", np(1), ["test_surface.py"], {}, "surface: ok", 1)]
    table += [(f"ops {n}", np(n), ["test_ops.py"], {}, ": ok", n) for n in (1, 2, 3, 4)]
    table += [(f"training {n}", np(n), ["test_training.py"], {}, ": ok", n) for n in (1, 2, 3, 4)]
    table += [("counting", np(2), ["test_counting.py"], {}, ": ok", 2)]
    table += [("forks", np(2), ["test_forks.py"], {}, ": ok", 2)]
    table += [(f"names {n}", np(n), ["test_names.py"], {}, ": ok", n) for n in (1, 2, 3, 4)]
    table += [(f"keras {n}", np(n), ["test_keras.py"], {}, ": ok", n) for n in (1, 2, 3, 4)]
    table += [(f"tf.keras {n}", np(n), ["test_keras.py", "tf"], {}, ": ok", n) for n in (1, 2, 3, 4)]
    if keras_3:
        legacy = {"TF_USE_LEGACY_KERAS": "1"}
        table += [("tf_keras", np(2), ["test_keras.py", "tf"], legacy, ": ok", 2)]
        table += [("tf_keras, training", np(2), ["test_training.py"], legacy, ": ok", 2)]
        table += on
    table += [("a rank dies", ELASTIC, ["elastic.py", "12"], {}, "done rank . of 2: steps 12 worlds 2", 2)]
    table += [("a rank dies in fit()", ELASTIC, fit, {}, killed, 2)]
    example = "final accuracy .* with 2 ranks"
    table += [("GradientTape", np(2), [EXAMPLES / "digits_tensorflow.py", "--target", "0.9"], {}, example, 1)]
    table += [("callbacks", np(2), [EXAMPLES / "digits_keras.py", "--target", "0.9"], {}, example, 1)]
    table += [("elastic", ELASTIC, [EXAMPLES / "elastic_keras.py"], {}, "trained 5 epochs", 1)]
    small = "--image-size 32 --batch-size 1 --num-warmup-batches 1 --num-batches-per-iter 1 --num-iters 2"
    program = [EXAMPLES / "synthetic_tensorflow.py", *small.split()]
    table += [("ResNet-50", np(2), program, {}, r"on 2 CPU\(s\)", 1)]
    return table


def main():
    """Run the jobs."""
    python, parts = sys.argv[1], sys.argv[2:]
    for name, flags, program, more, pattern, count in jobs(python):
        if parts and not any(name.startswith(part) for part in parts):
            continue
        command = [ROOT / "bin" / "gorun", *flags, python, "-B", HERE / program[0], *program[1:]]
        environ = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0", **more}
        begin = time.monotonic()
        try:
            ended = subprocess.run(
                command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300
            )
            said, code = ended.stdout, ended.returncode
        except subprocess.TimeoutExpired as error:
            said, code = (error.stdout or b"").decode(errors="replace"), "time-out"
        found = len(re.findall(pattern, said))
        good = code == 0 and found == count
        print(f"{'ok' if good else 'FAILED':6} {time.monotonic() - begin:5.1f} s  {name}", flush=True)
        if not good:
            print(f"{said}\nexit code {code}, {found} times {pattern!r} instead of {count}")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

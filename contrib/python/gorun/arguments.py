"""horovodrun's command line as an object, for scripts that ask horovod.runner.launch for it.

gorun itself reads these flags, and more, on its own; flags() turns such an object back into them.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

__all__ = ["parse_args"]

# Flags with a value, by its type. An attribute has the name of the first flag, unless another is given.
_VALUES: dict[type, tuple[str, ...]] = {
    str: (
        "-H --hosts", "-hostfile --hostfile", "--host-discovery-script", "--config-file", "--output-filename",
        "-i --ssh-identity-file", "--autotune-log-file", "--timeline-filename", "--mpi-args",
        "--binding-args", "--log-level",
    ),
    int: (
        "-p --ssh-port", "--start-timeout", "--elastic-timeout", "--reset-limit", "--fusion-threshold-mb",
        "--cache-capacity", "--autotune-warmup-samples", "--autotune-steps-per-sample",
        "--autotune-bayes-opt-max-samples", "--stall-check-warning-time-seconds",
        "--stall-check-shutdown-time-seconds", "--num-nccl-streams", "--thread-affinity",
        "--gloo-timeout-seconds",
    ),
    float: ("--cycle-time-ms", "--autotune-gaussian-process-noise"),
}  # fmt: skip
# Switches, with the flags that turn them on and off; None if neither was given.
_SWITCHES = {
    "hierarchical_allreduce": ("--hierarchical-allreduce", "--no-hierarchical-allreduce"),
    "hierarchical_allgather": ("--hierarchical-allgather", "--no-hierarchical-allgather"),
    "torus_allreduce": ("--torus-allreduce", "--no-torus-allreduce"),
    "autotune": ("--autotune", "--no-autotune"),
    "timeline_mark_cycles": ("--timeline-mark-cycles", "--no-timeline-mark-cycles"),
    "no_stall_check": ("--no-stall-check", "--stall-check"),
    "mpi_threads_disable": ("--mpi-threads-disable", "--no-mpi-threads-disable"),
    "log_with_timestamp": (
        "--log-with-timestamp --no-log-hide-timestamp", "--log-without-timestamp --log-hide-timestamp"
    ),
}  # fmt: skip
_PLAIN = {
    "disable_cache": "--disable-cache", "verbose": "--verbose", "tcp_flag": "--tcp", "use_gloo": "--gloo",
    "use_mpi": "--mpi", "use_jsrun": "--jsrun",
    "prefix_output_with_timestamp": "-prefix-timestamp --prefix-output-with-timestamp",
}  # fmt: skip


class _Interfaces(argparse.Action):
    """A set of names, from lists with commas; the flag may be repeated."""

    def __call__(self, parser: Any, args: argparse.Namespace, values: Any, flag: str | None = None) -> None:
        args.nics = (args.nics or set()).union(values.split(","))


def parse_args(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """Return a command line of horovodrun, by default this process's, under Horovod's names.

    What a --config-file says is not in it.
    """
    argv = sys.argv[1:] if argv is None else argv
    check = {"-cb", "--check-build"}.intersection(argv)
    args = _parser(needs_number=not check).parse_args(list(argv))
    args.run_func = args.executable = None  # horovod.run() sets them
    return args


def nothing_said() -> dict[str, Any]:
    """Return the attributes that parse_args() gives its result, all of them None."""
    return dict.fromkeys(vars(parse_args(["--check-build"])))


def flags(args: Any) -> list[str]:
    """Return the flags for gorun that correspond to such an object, which a script may have made."""
    found: list[str] = []
    for action in _parser(needs_number=False)._actions:
        value = getattr(args, action.dest, None)
        if value is None or not action.option_strings:
            continue
        flag = action.option_strings[0]
        if action.nargs == 0:
            found += [flag] if bool(value) == action.const else []
        elif isinstance(action, _Interfaces):
            names = value if isinstance(value, str) else ",".join(value)
            found += [flag, names] if names else []
        else:
            found += [flag, *map(str, value if action.nargs else [value])]
    return found


def _parser(needs_number: bool) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="horovodrun", description="see gorun --help")
    parser.add_argument("-np", "--num-proc", dest="num_proc", type=int, required=needs_number)
    parser.add_argument("-cb", "--check-build", action="store_true", default=None)
    for kind, flags in _VALUES.items():
        for names in flags:
            parser.add_argument(*names.split(), type=kind)
    for attribute, (on, off) in _SWITCHES.items():
        group = parser.add_mutually_exclusive_group()
        group.add_argument(*on.split(), dest=attribute, action="store_true", default=None)
        group.add_argument(*off.split(), dest=attribute, action="store_false", default=None)
    for attribute, names in _PLAIN.items():
        parser.add_argument(*names.split(), dest=attribute, action="store_true")
    parser.add_argument("--min-np", "--min-num-proc", dest="min_num_proc", type=int)
    parser.add_argument("--max-np", "--max-num-proc", dest="max_num_proc", type=int)
    parser.add_argument("--slots-per-host", dest="slots", type=int)
    parser.add_argument("--blacklist-cooldown-range", dest="cooldown_range", type=int, nargs=2)
    parser.add_argument("--network-interfaces", "--network-interface", dest="nics", action=_Interfaces)
    parser.add_argument("command", nargs=argparse.REMAINDER)
    return parser

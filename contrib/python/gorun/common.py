"""What all front ends pass on alike: the place of a rank, process sets, the usual reductions, errors."""

from gorun.basics import *  # noqa: F403
from gorun.basics import __all__ as _basics
from gorun.collectives import Adasum, Average, Sum
from gorun.exceptions import HorovodInternalError, HostsUpdatedInterrupt
from gorun.process_sets import ProcessSet, add_process_set, global_process_set, remove_process_set

__all__ = [
    "Adasum", "Average", "HorovodInternalError", "HostsUpdatedInterrupt", "ProcessSet", "Sum",
    "add_process_set", "global_process_set", "remove_process_set",
]  # fmt: skip
__all__ += _basics

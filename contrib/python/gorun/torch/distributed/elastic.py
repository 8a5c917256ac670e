"""Elastic training with torch.distributed on gorun's engine: each world gets a process group of its own."""

from __future__ import annotations

import functools
import os
import socket
from datetime import timedelta
from typing import Any, Callable

import torch
from torch import distributed as dist

from gorun import basics, elastic
from gorun.elastic import of_all
from gorun.exceptions import HorovodInternalError
from gorun.objects import broadcast_object
from gorun.torch.distributed.works import Future
from gorun.torch.elastic import TorchState

__all__ = ["run"]

STORE_TIME = timedelta(seconds=30)  # to connect with rank 0
WITHOUT_BARRIER = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 1)  # in init_process_group()


def run(func: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a training function whose first argument is a State, and which makes its own DDP.

    Before each call, torch's default process group is made for the ranks of the present world.
    """

    @functools.wraps(func)
    def with_group(state: elastic.State, *args: Any, **kwargs: Any) -> Any:
        try:
            _make_group()
            return func(state, *args, **kwargs)
        except HorovodInternalError:
            raise
        except RuntimeError as error:  # DDP, in C++, makes it of the error of an operation
            lost = basics.world().session.lost()  # or rank 0 was, before this rank reached its store
            if HorovodInternalError.__name__ not in str(error) and lost is None:
                raise
            text = str(error).splitlines()[0].rpartition(f"{HorovodInternalError.__name__}: ")[2]
            raise HorovodInternalError(text) from lost or Future.cause

    training = elastic.run(with_group)

    @functools.wraps(func)
    def trained(state: elastic.State, *args: Any, **kwargs: Any) -> Any:
        if isinstance(state, TorchState):
            state._follow_ddp()
        return training(state, *args, **kwargs)

    return trained


def _make_group() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
    store, address = None, None
    if basics.rank() == 0:  # torch has groups of some ranks meet there
        host = _address()
        store = dist.TCPStore(host, 0, basics.size(), True, wait_for_workers=False)
        address = host, store.port
    host, port = broadcast_object(address, name="gorun.torch.distributed.store")
    store = store or dist.TCPStore(host, port, basics.size(), False, timeout=STORE_TIME)
    of_all(None, "gorun.torch.distributed.met")  # fails at once where a rank is lost, unlike torch's barrier
    place = {"store": store, "rank": basics.rank(), "world_size": basics.size()}
    if WITHOUT_BARRIER:
        dist.init_process_group("gorun", **place)
        return
    try:
        dist.init_process_group("gorun", timeout=STORE_TIME, **place)
    except RuntimeError as error:
        raise HorovodInternalError(f"make a process group: {error}") from error
    dist.distributed_c10d._get_default_group().set_timeout(dist.default_pg_timeout)


def _address() -> str:
    """Return this host's address in the network of the host that had rank 0 when this process began."""
    other = os.environ.get("MASTER_ADDR", "localhost")
    family, kind, _, _, place = socket.getaddrinfo(other, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(place)  # sends nothing
        return str(probe.getsockname()[0])

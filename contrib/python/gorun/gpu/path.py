"""Which path tensors on GPUs take. choose() decides, from what look() has found on each rank."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from gorun.gpu import driver, nccl, staging
from gorun.gpu.kernels import MOST_ROWS

AUTO, NCCL, HIERARCHICAL, IPC, HOST = "auto", "nccl", "hierarchical", "ipc", "host"
ALL = (AUTO, NCCL, HIERARCHICAL, IPC, HOST)
SEVERAL = "NCCL_MULTI_RANK_GPU_ENABLE"  # experimental: GPUs that ranks share, and parts of GPUs
_ONLY_SO = f"which NCCL takes only with {SEVERAL}=1"


class Facts(NamedTuple):
    """What a rank has."""

    host: str
    gpu: str = ""  # its UUID
    part: bool = False  # it is a part of a GPU (MIG)
    nccl: str = ""  # the version
    lacks: str = ""  # what is missing, if it has no GPU or no NCCL
    several: bool = False  # NCCL takes GPUs that ranks share
    alone: str = ""  # why it cannot share memory of its GPU with other ranks


class Choice(NamedTuple):
    """A path, and why it was chosen."""

    path: str
    why: str


def asked(environ: Mapping[str, str] = os.environ) -> str:
    """Return the path that the job wants."""
    return environ.get("GORUN_GPU_PATH") or HOST


def choose(wanted: str, ranks: Sequence[Facts]) -> Choice:
    """Return the path of all ranks. ValueError if what the job wants is not possible."""
    if wanted == HOST:
        return Choice(HOST, "the job asks for it")
    if wanted not in ALL:
        raise ValueError(f"--gpu-path {wanted}: neither auto, nccl, hierarchical, ipc nor host")
    if len(ranks) == 1:
        return Choice(HOST, "there is one rank")
    if wanted == IPC:
        return _shared_memory(ranks)
    against = _against(ranks, wanted != AUTO)
    if wanted == HIERARCHICAL and not against:
        members = by_host(ranks)
        if len({len(each) for each in members}) == 1:
            return Choice(HIERARCHICAL, f"NCCL {ranks[0].nccl} within each host, of {len(members)}")
        return Choice(HOST, "hosts have different numbers of ranks")
    if not against:
        own = "ranks share GPUs" if _sharers(ranks) else "each rank has a GPU of its own"
        return Choice(NCCL, f"NCCL {ranks[0].nccl}, {own}")
    if wanted != AUTO:
        raise _refusal(wanted, against)
    if _sharers(ranks):
        why = _against_ipc(ranks)
        return Choice(HOST, f"{_sharers(ranks)}, and {why}") if why else _shared_memory(ranks)
    return Choice(HOST, against)


def _refusal(wanted: str, why: str) -> ValueError:
    return ValueError(f"--gpu-path {wanted}: {why}; --gpu-path auto takes the path by the host then")


def _shared_memory(ranks: Sequence[Facts]) -> Choice:
    why = _against_ipc(ranks)
    if why:
        raise _refusal(IPC, why)
    gpus = by_gpu(ranks)
    if len({len(members) for members in gpus}) > 1:
        return Choice(HOST, "GPUs have different numbers of ranks")
    return Choice(IPC, f"{len(gpus[0])} ranks share each GPU, of {len(gpus)}")


def _against_ipc(ranks: Sequence[Facts]) -> str:
    """Return what keeps ranks that share GPUs from sharing their memory, "" if nothing does."""
    for rank, facts in enumerate(ranks):
        if not facts.gpu:
            return f"rank {rank} on {facts.host}: {facts.lacks}"
        if facts.part:
            return f"rank {rank} on {facts.host} has a part of a GPU (MIG)"
        if facts.alone:
            return f"rank {rank} on {facts.host} cannot share memory of its GPU: {facts.alone}"
    most = max(len(members) for members in by_gpu(ranks))
    if most == 1:
        return "no ranks share a GPU"
    return f"{most} ranks share a GPU, and {MOST_ROWS} may" if most > MOST_ROWS else ""


def _against(ranks: Sequence[Facts], experimental: bool) -> str:
    """Return what keeps NCCL from serving all ranks, "" if nothing does."""
    for rank, facts in enumerate(ranks):
        if facts.lacks:
            return f"rank {rank} on {facts.host}: {facts.lacks}"
    for rank, facts in enumerate(ranks):
        if facts.nccl != ranks[0].nccl:
            first = f"rank 0 on {ranks[0].host} has NCCL {ranks[0].nccl}"
            return f"{first}, and rank {rank} on {facts.host} {facts.nccl}"
    if experimental and all(facts.several for facts in ranks):
        return ""
    for rank, facts in enumerate(ranks):
        if facts.part:
            return f"rank {rank} on {facts.host} has a part of a GPU (MIG), {_ONLY_SO}"
    shared = _sharers(ranks)
    return f"{shared}, {_ONLY_SO}" if shared else ""


def _sharers(ranks: Sequence[Facts]) -> str:
    """Return which ranks are the first that share a GPU, "" if none do."""
    for members in by_gpu(ranks):
        if len(members) > 1 and ranks[members[0]].gpu:
            return f"ranks {members[0]} and {members[1]} on {ranks[members[0]].host} share a GPU"
    return ""


def by_host(ranks: Sequence[Facts]) -> list[list[int]]:
    """Return the ranks of each host."""
    return _alike((facts.host,) for facts in ranks)


def by_gpu(ranks: Sequence[Facts]) -> list[list[int]]:
    """Return the ranks of each GPU."""
    return _alike((facts.host, facts.gpu) for facts in ranks)


def _alike(keys: Iterable[tuple[str, ...]]) -> list[list[int]]:
    members: dict[tuple[str, ...], list[int]] = {}
    for rank, key in enumerate(keys):
        members.setdefault(key, []).append(rank)
    return list(members.values())


def look(host: str, ordinal: int, wanted: str, environ: Mapping[str, str] = os.environ) -> Facts:
    """Return what this rank has, on the device with that ordinal; -1 for none. wanted: the path."""
    facts = _look(host, ordinal, environ)
    if wanted in (AUTO, IPC) and facts.gpu and not facts.part:
        with driver.driver().relaxed():
            facts = facts._replace(alone=staging.trial(ordinal))
    return facts


def _look(host: str, ordinal: int, environ: Mapping[str, str]) -> Facts:
    several = environ.get(SEVERAL) == "1"
    if ordinal < 0:
        return Facts(host, lacks="no GPU that its framework can use", several=several)
    try:
        cuda = driver.driver()
        number, release = driver.device(ordinal).number, cuda.version() // 1000
        gpu, part = cuda.uuid(number), "MIG" in cuda.name(number)
    except (OSError, driver.Failed) as error:
        return Facts(host, lacks=f"CUDA's driver: {error}", several=several)
    try:
        version = nccl.dotted(nccl.nccl().version())
    except (OSError, nccl.Failed) as error:
        lacks = f"no NCCL: {error}; pip install nvidia-nccl-cu{release}"
        return Facts(host, gpu, part, lacks=lacks, several=several)
    return Facts(host, gpu, part, version, several=several)


def survey() -> dict[str, object]:
    """Return what this host's GPUs and libraries are like, for gorun doctor."""
    found: dict[str, object] = {"lacks": "", "driver": "", "nccl": "", "parts": False, "alone": ""}
    try:
        cuda = driver.driver()
        version = cuda.version()
        found["driver"] = f"{version // 1000}.{version % 1000 // 10}"
        numbers = range(cuda.count())
        found["parts"] = any("MIG" in cuda.name(number) for number in numbers)
        pairs = [(one, other) for one in numbers for other in numbers if one != other]
        found.update(pairs=len(pairs), reached=sum(cuda.reaches(*pair) for pair in pairs))
        if not found["parts"]:
            found["alone"] = staging.trial(0)
    except (OSError, driver.Failed) as error:
        return {**found, "lacks": f"CUDA's driver: {error}"}
    try:
        found["nccl"] = nccl.dotted(nccl.nccl().version())
    except (OSError, nccl.Failed) as error:
        found["lacks"] = f"no NCCL: {error}"
    return found


def main() -> None:
    """Print what gorun doctor asks for."""
    json.dump(survey(), sys.stdout)

"""Which path tensors on GPUs take. choose() decides, from what look() has found on each rank."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gorun.gpu import driver, nccl

AUTO, NCCL, HIERARCHICAL, HOST = "auto", "nccl", "hierarchical", "host"
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
    if wanted not in (AUTO, NCCL, HIERARCHICAL):
        raise ValueError(f"--gpu-path {wanted}: neither auto, nccl, hierarchical nor host")
    if len(ranks) == 1:
        return Choice(HOST, "there is one rank")
    against = _against(ranks, wanted != AUTO)
    if wanted == HIERARCHICAL and not against:
        members = by_host(ranks)
        if len({len(each) for each in members}) == 1:
            return Choice(HIERARCHICAL, f"NCCL {ranks[0].nccl} within each host, of {len(members)}")
        return Choice(HOST, "hosts have different numbers of ranks")
    if not against:
        own = "ranks share GPUs" if _shared(ranks) else "each rank has a GPU of its own"
        return Choice(NCCL, f"NCCL {ranks[0].nccl}, {own}")
    if wanted != AUTO:
        raise ValueError(f"--gpu-path {wanted}: {against}; --gpu-path auto takes the path by the host then")
    return Choice(HOST, against)


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
    return _shared(ranks)


def _shared(ranks: Sequence[Facts]) -> str:
    first: dict[tuple[str, str], int] = {}
    for rank, facts in enumerate(ranks):
        other = first.setdefault((facts.host, facts.gpu), rank)
        if other != rank:
            return f"ranks {other} and {rank} on {facts.host} share a GPU, {_ONLY_SO}"
    return ""


def by_host(ranks: Sequence[Facts]) -> list[list[int]]:
    """Return the ranks of each host."""
    members: dict[str, list[int]] = {}
    for rank, facts in enumerate(ranks):
        members.setdefault(facts.host, []).append(rank)
    return list(members.values())


def look(host: str, ordinal: int, environ: Mapping[str, str] = os.environ) -> Facts:
    """Return what this rank has, on the device with that ordinal; -1 for none."""
    several = environ.get(SEVERAL) == "1"
    if ordinal < 0:
        return Facts(host, lacks="no GPU that its framework can use", several=several)
    try:
        cuda = driver.driver()
        number, release = driver.Device(cuda, ordinal).number, cuda.version() // 1000
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
    found: dict[str, object] = {"lacks": "", "driver": "", "nccl": "", "parts": False}
    try:
        cuda = driver.driver()
        version = cuda.version()
        found["driver"] = f"{version // 1000}.{version % 1000 // 10}"
        numbers = range(cuda.count())
        found["parts"] = any("MIG" in cuda.name(number) for number in numbers)
        pairs = [(one, other) for one in numbers for other in numbers if one != other]
        found.update(pairs=len(pairs), reached=sum(cuda.reaches(*pair) for pair in pairs))
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

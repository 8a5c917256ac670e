#!/usr/bin/env python3
"""Measure training steps on GPUs by the paths of gorun: how much of the exchange backward hides.

    contrib/bench/gpu_steps.py --out results            # ResNet-50 and a transformer, on 2 ranks
    contrib/bench/gpu_steps.py --out results --ranks 4 --paths nccl,hierarchical --minutes 5

It needs what gpu.py beside it needs, and writes results/steps.md, a table, and results/steps.json. Each case
is one job that measures, on all ranks at once: a step without exchange (the plain optimizer), a step with
DistributedOptimizer, and a sum of all gradients alone. The part of that sum which the second step does not
take longer than the first is hidden. It also compares copies to memory that gorun has pinned with copies to
memory that CUDA has allocated.

With --small the models are tiny and run on CPUs where there is no GPU: a test of this program.

This file is also the program of the ranks: gpu_steps.py --rank MODEL.
"""

from __future__ import annotations

import argparse
import json
import mmap
import statistics
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

import gpu

if TYPE_CHECKING:
    import torch

MODELS = ("resnet50", "transformer")
STEPS = 10  # of each kind, after WARM_UP
WARM_UP = 3
CASE_SECONDS = 120.0
COPY_BYTES = 256 << 20


def resnet50(small: bool) -> tuple[torch.nn.Module, torch.Tensor, int]:
    """Return ResNet-50 (He et al. 2015, table 1), a batch of 32 images, and the number of classes."""
    import torch
    from torch import nn

    def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False), nn.BatchNorm2d(outputs)]

    class Block(nn.Module):
        def __init__(self, inputs: int, width: int, stride: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                *conv(inputs, width, 1),
                nn.ReLU(),
                *conv(width, width, 3, stride),
                nn.ReLU(),
                *conv(width, 4 * width, 1),
            )
            same = inputs == 4 * width and stride == 1
            self.shortcut = nn.Identity() if same else nn.Sequential(*conv(inputs, 4 * width, 1, stride))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.body(x) + self.shortcut(x))

    scale = 16 if small else 1
    layers: list[nn.Module] = [*conv(3, 64 // scale, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64 // scale
    for number, (width, count) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3))):
        for block in range(1 if small else count):
            layers.append(Block(inputs, width // scale, 2 if number and not block else 1))
            inputs = 4 * width // scale
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))
    images = torch.randn(2, 3, 32, 32) if small else torch.randn(32, 3, 224, 224)
    return model, images, 1000


def transformer(small: bool) -> tuple[torch.nn.Module, torch.Tensor, int]:
    """Return an encoder as large as BERT's smaller one, a batch of 8 sequences of 512, and its classes."""
    import torch
    from torch import nn

    width, depth, length = (32, 2, 8) if small else (768, 12, 512)
    layer = nn.TransformerEncoderLayer(width, width // 16, 4 * width, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.TransformerEncoder(layer, depth), nn.Flatten(), nn.Linear(width * length, 2))
    return model, torch.randn(2 if small else 8, length, width), 2


def median(step: Callable[[], object], settle: Callable[[], object]) -> float:
    """Return the median seconds of a step, which has ended when settle returns."""
    times = []
    for i in range(WARM_UP + STEPS):
        began = time.perf_counter()
        step()
        settle()
        if i >= WARM_UP:
            times.append(time.perf_counter() - began)
    return statistics.median(times)


def rank_main(name: str, small: bool) -> None:
    """Measure a model as one of the ranks; rank 0 writes a line of JSON."""
    import gorun.torch as hvd
    import torch

    hvd.init()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", hvd.rank() % torch.cuda.device_count()) if cuda else torch.device("cpu")
    settle: Callable[[], object] = torch.cuda.synchronize if cuda else (lambda: None)
    if cuda:
        torch.cuda.set_device(device)
    torch.manual_seed(1)
    model, data, classes = {"resnet50": resnet50, "transformer": transformer}[name](small)
    model, data = model.to(device), data.to(device)
    wanted = torch.zeros(len(data), dtype=torch.long, device=device)

    def stepping(optimizer: torch.optim.Optimizer) -> Callable[[], object]:
        def step() -> None:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(data), wanted).backward()
            optimizer.step()

        return step

    plain = torch.optim.SGD(model.parameters(), lr=1e-6)
    without = median(stepping(plain), settle)
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    alone = median(lambda: hvd.grouped_allreduce_(gradients, name="gradients"), settle)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=1e-6), named_parameters=model.named_parameters()
    )
    whole = median(stepping(optimizer), settle)
    if hvd.rank() == 0:
        nbytes = sum(g.numel() * g.element_size() for g in gradients)
        print(json.dumps({"model": name, "bytes": nbytes, "without": without, "alone": alone, "with": whole}))


def run_case(
    gorun: str, path: str, model: str, ranks: int, gpus: int, small: bool, limit: float
) -> dict[str, Any]:
    """Run one model on one path, and return what its rank 0 measured, with what went wrong."""
    result: dict[str, Any] = {"path": path, "model": model, "ranks": ranks, "error": ""}
    program = [sys.executable, "-B", str(Path(__file__).resolve()), "--rank", model] + ["--small"] * small
    command = [
        gorun,
        "-v",
        "-np",
        str(ranks),
        "-H",
        f"localhost:{ranks}",
        "--no-tag-output",
        "--gpu-path",
        path,
    ]
    out, said, result["error"] = gpu.run(command + program, ranks, gpus, limit)
    found = [json.loads(line) for line in out.splitlines() if line.startswith('{"model"')]
    other = gpu.another_path(path, said) if gpus else ""
    if found and not result["error"] and not other:
        result.update(found[0])
    else:
        result["error"] = result["error"] or other[:200] or "rank 0 wrote no figures"
    return result


def hidden(case: dict[str, Any]) -> float:
    """Return the part of the exchange that a step does not take longer for, from 0 to 1."""
    return min(1.0, max(0.0, 1 - (case["with"] - case["without"]) / case["alone"]))


def copies() -> str:
    """Compare copies to memory that gorun has pinned with copies to memory of CUDA's, on the first GPU."""
    import torch
    from gorun.gpu import driver

    with mmap.mmap(-1, COPY_BYTES) as memory:
        ours = torch.frombuffer(memory, dtype=torch.uint8)
        device = driver.device(0)
        device.pin(ours.data_ptr(), COPY_BYTES)
        try:
            tensor = torch.ones(COPY_BYTES, dtype=torch.uint8, device="cuda:0")
            theirs = torch.empty(COPY_BYTES, dtype=torch.uint8, pin_memory=True)
            rates = {}
            for host, name in ((ours, "gorun"), (theirs, "CUDA")):
                for way, (to, source) in {"out": (host, tensor), "back": (tensor, host)}.items():
                    seconds = median(
                        lambda t=to, s=source: t.copy_(s, non_blocking=True), torch.cuda.synchronize
                    )
                    rates[name, way] = COPY_BYTES / seconds / 1e9
        finally:
            device.unpin(ours.data_ptr())
        del ours
    return "; ".join(
        f"{way}: {rates['gorun', way]:.1f} GB/s with memory pinned by gorun, "
        f"{rates['CUDA', way]:.1f} with CUDA's own, {rates['gorun', way] / rates['CUDA', way]:.0%}"
        for way in ("out", "back")
    )


def table(results: list[dict[str, Any]], about: str, copied: str) -> str:
    """Return results as a page."""
    lines = [
        "# Training steps on GPUs",
        "",
        about,
        "",
        "Medians of rank 0, in ms. Hidden is the part of the exchange that does not lengthen the step.",
        "",
        "| model | path | ranks | step without exchange | step | exchange alone | hidden |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for case in results:
        cells = ["–"] * 4
        if not case["error"]:
            cells = [f"{case[key] * 1e3:.2f}" for key in ("without", "with", "alone")] + [
                f"{hidden(case):.0%}"
            ]
        lines.append(
            f"| {case['model']} | {gpu.PATHS[case['path']]} | {case['ranks']} | " + " | ".join(cells) + " |"
        )
    lines += [""] + [f"Copies of {COPY_BYTES >> 20} MiB, {copied}.", ""] * bool(copied)
    lines += [
        f"- {c['model']}, {gpu.PATHS[c['path']]}, {c['ranks']} ranks: {c['error']}"
        for c in results
        if c["error"]
    ]
    return "\n".join(lines).rstrip() + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure training steps on GPUs by the paths of gorun.")
    root = Path(__file__).resolve().parents[2]
    parser.add_argument("--gorun", default=str(root / "bin" / "gorun"), help="the binary")
    parser.add_argument("--out", type=Path, help="the folder for the table")
    parser.add_argument("--ranks", type=int, default=2, help="the number of ranks")
    parser.add_argument(
        "--paths", default=",".join(gpu.GORUNS), help="paths, with commas: " + ", ".join(gpu.GORUNS)
    )
    parser.add_argument(
        "--models", default=",".join(MODELS), help="models, with commas: " + ", ".join(MODELS)
    )
    parser.add_argument("--minutes", type=float, default=9.5, help="after which nothing more begins or runs")
    parser.add_argument("--small", action="store_true", help="tiny models, on CPUs where there is no GPU")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank:
        rank_main(options.rank, options.small)
        return
    if options.out is None:
        parser.error("--out is missing")
    until = time.monotonic() + 60 * options.minutes
    import torch

    gpus, about, copied = 0, "Tiny models on CPUs: a test of this program, no measurement.", ""
    if torch.cuda.is_available() or not options.small:
        gpus, about = gpu.devices()
        sys.path[:0] = [options.gorun]  # the binding is in the binary
        copied = copies()
    options.out.mkdir(parents=True, exist_ok=True)
    results: list[dict[str, Any]] = []
    page = ""
    for model in options.models.split(","):
        for path in options.paths.split(","):
            left = until - time.monotonic()
            if left < 5:
                results.append(
                    {"path": path, "model": model, "ranks": options.ranks, "error": "no time was left"}
                )
            else:
                results.append(
                    run_case(
                        options.gorun,
                        path,
                        model,
                        options.ranks,
                        gpus,
                        options.small,
                        min(left, CASE_SECONDS),
                    )
                )
            # After each case: what there is counts, whatever happens to this machine.
            page = table(results, f"{about} `contrib/bench/gpu_steps.py {' '.join(sys.argv[1:])}`", copied)
            (options.out / "steps.md").write_text(page)
            (options.out / "steps.json").write_text(
                json.dumps({"about": about, "copies": copied, "results": results}, indent=1)
            )
            print(f"{model}, {gpu.PATHS[path]}: {results[-1]['error'] or 'measured'}", file=sys.stderr)
    print(page, end="")


if __name__ == "__main__":
    main()

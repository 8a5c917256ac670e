#!/usr/bin/env python3
"""Have NVIDIA's assembler take every kernel: contrib/gpu/assemble.py PTXAS [ARCHITECTURE...].

The wheel nvidia-cuda-nvcc-cu12 has it, in nvidia/cuda_nvcc/bin.
"""

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

from gorun import constants
from gorun.gpu import kernels

ARCHITECTURES = ["70", "75", "80", "86", "89", "90"]
ROWS = [2, 3, kernels.MOST_ROWS]


def main() -> None:
    assembler, *wanted = sys.argv[1:]
    count = 0
    for architecture in wanted or ARCHITECTURES:
        for dtype, op in kernels.KINDS:
            for rows in ROWS if (dtype, op) == ("float16", constants.AVERAGE) else ROWS[:1]:
                text = kernels.text(dtype, op, rows)
                command = [assembler, f"-arch=sm_{architecture}", "-o", os.devnull, "-"]
                subprocess.run(command, input=text.encode(), check=True)
                count += 1
    print(f"{assembler} takes {count} kernels, of {len(wanted or ARCHITECTURES)} architectures")


main()

"""Runs programs one after the other, each in a child of a process that has imported torch.

Importing torch takes longer than most of these programs. Each has a port of its own, as a rank that is early would
meet the store of the program before. Linux gives no connection one of these ports.
"""

import os
import runpy
import sys

import torch  # noqa: F401

port = 10000 + int(os.environ["MASTER_PORT"]) % 20000
for number, program in enumerate(sys.argv[1:]):
    os.environ["MASTER_PORT"] = str(port + number)
    child = os.fork()
    if child == 0:
        sys.argv, sys.path[0] = [program], os.path.dirname(os.path.abspath(program))
        runpy.run_path(program, run_name="__main__")
        sys.exit()  # as a program does, with what it has registered for its exit
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code != 0:
        sys.exit(f"{program} has ended with {code}")
    print(f"{program} has ended well", flush=True)

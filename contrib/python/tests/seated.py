"""A process of an engine, for test_seats.py: takes a seat, enters the world, and does what it is told to.

    python3 seated.py TOKEN HOST INDEX
"""

import os
import sys

from gorun.seats.place import Place

place = Place(sys.argv[1], sys.argv[2], int(sys.argv[3]))
print("waits", flush=True)
for command in sys.stdin:
    name, _, argument = command.strip().partition(" ")
    if name == "pass":
        place.take(30.0)
        place.leave()
        print("passed", flush=True)
    elif name == "take":
        rank = place.take(float(argument or 30))
        from gorun import basics

        basics.init()
        there = "MASTER_ADDR" in os.environ
        print(rank, basics.rank(), basics.size(), basics.local_rank(), there, flush=True)
    elif name == "leave":
        place.leave(int(argument), "the function failed" if int(argument) else "")
        print("left", flush=True)

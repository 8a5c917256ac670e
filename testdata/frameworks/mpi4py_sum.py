"""Ranks of mpi4py find each other by the MPICH that pip installs beside it."""

from mpi4py import MPI

world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
print(f"mpi4py: rank {world.rank} of {world.size} has {total}", flush=True)

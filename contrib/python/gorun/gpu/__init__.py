"""CUDA's driver API and NCCL by ctypes, and collectives over them: no compiler and no framework is needed."""

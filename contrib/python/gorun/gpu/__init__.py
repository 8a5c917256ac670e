"""CUDA's driver API and NCCL by ctypes: no compiler and no framework is needed.

No path of tensors goes over them yet: see gorun.torch.cuda for how a GPU's gradients travel.
"""

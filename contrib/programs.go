// Package contrib holds the sources of the programs that gorun's peers are measured with, so that `gorun bench --vs`
// has them wherever the binary is.
package contrib

import "embed"

// Programs are the files of bench that ranks of the peers are made of.
//
//go:embed bench/measure.h bench/mpi_collective.c bench/rank.py bench/torch_gloo.py bench/horovod_torch.py
var Programs embed.FS

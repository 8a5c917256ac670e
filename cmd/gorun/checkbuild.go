package main

import (
	"fmt"
	"io"
)

// checkBuild prints what horovodrun --check-build prints, in its layout, of what takes Horovod's place here.
func checkBuild(w io.Writer) error {
	_, err := fmt.Fprintf(w, `gorun %s, in place of Horovod v%s:

Available Frameworks:
    [X] TensorFlow
    [X] PyTorch
    [ ] MXNet

Available Controllers:
    [ ] MPI
    [X] Gloo

Available Tensor Operations:
    [ ] NCCL
    [ ] DDL
    [ ] CCL
    [ ] MPI
    [X] Gloo
`, version, horovodVersion)
	return err
}

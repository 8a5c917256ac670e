package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"gorun/topology/doctor"
)

// checkBuild prints what horovodrun --check-build prints, in its layout, of what takes Horovod's place here, and then
// which frameworks this host has.
func checkBuild(ctx context.Context, w io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find frameworks: %w", err)
	}
	_, frameworks := doctor.Python(ctx, self)
	_, err = fmt.Fprintf(w, `gorun %s, in place of Horovod v%s:

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

Frameworks of python3 on this host (gorun doctor -H shows other hosts):
    %s
`, version, horovodVersion, strings.ReplaceAll(cmp.Or(frameworks, "none"), ", ", "\n    "))
	return err
}

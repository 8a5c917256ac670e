//go:build rdma

package command

import (
	"fmt"

	"gorun/collective/verbs/ibverbs"
)

// checkRDMA loads the library and its providers, and has them open the devices: what hangs or crashes does so in this
// process, and not in the daemon. What fails otherwise fails again in the daemon, which reports it.
func checkRDMA(library string) error {
	provider, err := ibverbs.Load(library)
	if err != nil {
		fmt.Println(err)
		return ExitStatus(1)
	}
	provider.Ports()
	return nil
}

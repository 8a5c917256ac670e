//go:build rdma

package command

import (
	"fmt"

	"gorun/collective/verbs/ibverbs"
)

// checkRDMA is what gorund-rdma does before it is a daemon.
func checkRDMA(library string) error {
	if _, err := ibverbs.Load(library); err != nil {
		fmt.Println(err)
		return ExitStatus(1)
	}
	return nil
}

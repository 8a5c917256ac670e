//go:build linux && !rdma

package command

import "errors"

// checkRDMA fails: this is not gorund-rdma.
func checkRDMA(string) error { return errors.New("this program was built without RDMA") }

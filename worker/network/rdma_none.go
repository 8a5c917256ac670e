//go:build !rdma

package network

import "errors"

// openRDMA reports why this program has no RDMA, if the job wants it.
func (n *Network) openRDMA(func(func())) {
	err := n.cfg.NoRDMA
	if err == nil {
		err = errors.New("the resident daemon runs without --rdma; start it by gorun worker --rdma")
	}
	if n.wantsRDMA() {
		n.noRDMA(err)
	}
}

package worker

import (
	"net/netip"
	"slices"
	"testing"

	"gorun/rendezvous/wire"
)

// TestWayBack: a host that was reached at an address that is gone is not found at the loopback address, whoever it asks the
// way to; one that the launcher runs on, and that nobody else is known to belong to, is.
func TestWayBack(t *testing.T) {
	for _, toward := range []string{"", "localhost", "127.0.0.1"} {
		for _, lost := range []bool{false, true} {
			d := &daemon{job: &wire.Job{Toward: toward}}
			d.where.lost = lost
			addrs, _ := d.addresses() // none is an error
			if looped := slices.ContainsFunc(addrs, netip.Addr.IsLoopback); looped == lost {
				t.Errorf("toward %q, its address lost: %v: is found at %v", toward, lost, addrs)
			}
		}
	}
}

package worker

import (
	"net/netip"
	"slices"
	"testing"

	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/topology/probe"
)

// TestWayBack: a host that was reached at an address that is gone is not found at the loopback address, whoever it asks the
// way to; one that the launcher runs on, and that nobody else is known to belong to, is.
func TestWayBack(t *testing.T) {
	for _, toward := range []string{"", "localhost", "127.0.0.1"} {
		for _, lost := range []bool{false, true} {
			d := &daemon{job: &wire.Job{Toward: toward}}
			d.where.lost = lost
			addrs, _ := d.addresses(probe.Interfaces()) // none is an error
			if looped := slices.ContainsFunc(addrs, netip.Addr.IsLoopback); looped == lost {
				t.Errorf("toward %q, its address lost: %v: is found at %v", toward, lost, addrs)
			}
		}
	}
}

// TestOpenToOthers: a host on the launcher's own machine is found where others reach it as soon as any may come, by whatever
// name it is called, and at its loopback address only while all hosts are known and none is elsewhere.
func TestOpenToOthers(t *testing.T) {
	elsewhere := len(addresses(probe.Interfaces(), netip.Addr{}, topology.ChosenNIC(nil, nil))) > 0 // this machine has a network
	for _, job := range []wire.Job{{}, {Toward: "localhost"}, {LocalIP: "127.0.0.1"}} {
		for _, open := range []bool{false, true} {
			job.Open = open
			d := &daemon{job: &job}
			addrs, err := d.firstAddresses(probe.Interfaces())
			if err != nil {
				t.Fatal(err)
			}
			if loops := addrs[0].IsLoopback(); loops == (open && elsewhere) {
				t.Errorf("%+v: is found at %v", job, addrs)
			}
		}
	}
}

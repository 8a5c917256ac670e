package network

import (
	"net/netip"
	"slices"
	"testing"

	"gorun/collective/tcp"
	"gorun/contrib/must"
	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/topology/probe"
	"gorun/worker/loop"
)

// TestWayBack: a host that was reached at an address that is gone is not found at the loopback address, whatever host
// it asks the way to; one that the launcher runs on, and that no one else is known to belong to, is.
func TestWayBack(t *testing.T) {
	for _, toward := range []string{"", "localhost", "127.0.0.1"} {
		for _, lost := range []bool{false, true} {
			n := New(Config{Component: loop.Component{Job: &wire.Job{Toward: toward}}, Daemon: nowhere{}})
			n.lost = lost
			addrs, _ := n.addresses(probe.Interfaces()) // none is an error
			if looped := slices.ContainsFunc(addrs, netip.Addr.IsLoopback); looped == lost {
				t.Errorf("toward %q, its address lost: %v: is found at %v", toward, lost, addrs)
			}
		}
	}
}

// TestOpenToOthers: a host on the launcher's own machine is found where others reach it as soon as any may come, by
// whatever name it is called, and at its loopback address only while all hosts are known and none is elsewhere.
func TestOpenToOthers(t *testing.T) {
	elsewhere := len(addresses(probe.Interfaces(), netip.Addr{}, topology.ChosenNIC(nil, nil))) > 0 // this machine has a network
	for _, job := range []wire.Job{{}, {Toward: "localhost"}, {LocalIP: "127.0.0.1"}} {
		for _, open := range []bool{false, true} {
			job.Open = open
			n := New(Config{Component: loop.Component{Job: &job}, Daemon: nowhere{}})
			addrs, err := n.FirstAddresses(probe.Interfaces())
			must.Do(t, err)
			if loops := addrs[0].IsLoopback(); loops == (open && elsewhere) {
				t.Errorf("%+v: is found at %v", job, addrs)
			}
		}
	}
}

// nowhere is the daemon of a host without NICs that has no roster yet.
type nowhere struct{ peers *wire.Roster }

func (nowhere) Host() topology.Host   { return topology.Host{} }
func (n nowhere) Peers() *wire.Roster { return n.peers }
func (nowhere) Lost(int, error)       {}

// TestStrangePeer: hosts that no roster names are not looked for.
func TestStrangePeer(t *testing.T) {
	n := New(Config{Component: loop.Component{Job: &wire.Job{}}, Daemon: nowhere{&wire.Roster{}}})
	if _, err := n.dial(t.Context(), tcp.Options{}, 7, 0); err == nil || err.Error() != "dial host id 7: not in the roster" {
		t.Errorf("dial: %v", err)
	}
}

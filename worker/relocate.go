package worker

import (
	"context"
	"strings"

	"gorun/rendezvous/wire"
	"gorun/topology/probe"
	"gorun/worker/network"
)

// watchAddresses notices when this host gets or loses an address.
func (d *daemon) watchAddresses(ctx context.Context) {
	if d.job.Alone {
		return
	}
	if err := probe.WatchAddresses(ctx, func() { d.post(ctx, func() { d.lookAtAddresses(ctx) }) }); err != nil {
		d.log.Warn("addresses: not watched", "error", err)
	}
}

// lookAtAddresses notifies the others if this host is found elsewhere than before. A host that is not in a world yet, a
// prestarted one for example, notifies the launcher, for the roster with it that may come.
func (d *daemon) lookAtAddresses(ctx context.Context) {
	if d.member.Ending() {
		return
	}
	m := d.net.LookAround(d.member.Others())
	if m == nil {
		return
	}
	d.component().Tell("is found at %s now", strings.Join(network.HostsOf(m.Data), ", "))
	ready := *d.ready
	ready.Gossip, ready.Data = m.Gossip, m.Data
	d.ready = &ready // for a launcher that takes over
	d.announce(ctx, m, func() {})
	d.loop.Go(func() { d.machine.ProbeAgain(ctx, "", func() {}) })
}

// peerMoved takes the news that a peer is found elsewhere.
func (d *daemon) peerMoved(m *wire.Moved) {
	if !d.net.Moved(m) || d.member.Roster() == nil {
		return
	}
	d.member.Relocate(d.net.Locate)
	d.net.Renew(m)
}

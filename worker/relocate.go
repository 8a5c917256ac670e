package worker

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"gorun/rendezvous/wire"
	"gorun/topology/probe"
)

// A host may get another address while a job runs: another lease of DHCP, a move to another network. It notices that
// itself, replaces the streams that went out from addresses it has no more, and tells the others where it is. They try
// from their side as well, so that one way that works is enough.

// whereabouts are where hosts are found that are not where they were when they joined.
type whereabouts struct {
	own   []string // candidates for data of this host, as its peers know them
	stamp uint64   // of the last news of this host
	lost  bool     // the address at which the launcher reached this host is gone
	peers map[int]*wire.Moved
}

// candidates are this host's addresses as its peers dial them.
func (d *daemon) candidates(addrs []netip.Addr) ([]string, error) {
	_, port, err := net.SplitHostPort(d.listener.Addr().String())
	if err != nil {
		return nil, fmt.Errorf("read listener address: %w", err)
	}
	var out []string
	for _, a := range addrs {
		out = append(out, net.JoinHostPort(a.String(), port))
	}
	return out, nil
}

// watchAddresses notices when this host gets or loses an address.
func (d *daemon) watchAddresses(ctx context.Context) {
	if d.job.Alone {
		return
	}
	if err := probe.WatchAddresses(ctx, func() { d.post(ctx, func() { d.lookAtAddresses(ctx) }) }); err != nil {
		d.log.Warn("addresses: not watched", "error", err)
	}
}

// lookAtAddresses tells the others if this host is found elsewhere than before. One that is not in a world yet, a spare one
// say, tells the launcher, for the roster with it that may come.
func (d *daemon) lookAtAddresses(ctx context.Context) {
	if d.stopping {
		return
	}
	mine := ownAddresses()
	if hint, err := netip.ParseAddr(d.job.LocalIP); err == nil && !mine[hint.Unmap()] {
		d.job.LocalIP, d.where.lost = "", true // what leads here now is what leads to a peer
		for _, p := range d.member.others() {
			if len(p.Data) > 0 {
				d.job.Toward, _, _ = net.SplitHostPort(p.Data[0])
				break
			}
		}
	}
	addrs, err := d.addresses(probe.Interfaces())
	if err != nil {
		return // for now there is none
	}
	data, err := d.candidates(addrs)
	if err != nil || slices.Equal(data, d.where.own) {
		return
	}
	_, port, err := net.SplitHostPort(d.gossip.Addr())
	if err != nil {
		return
	}
	d.where.own = data
	d.where.stamp++
	d.tell("is found at " + strings.Join(hostsOf(data), ", ") + " now")
	for _, p := range d.member.others() {
		d.directory.doubt(p.ID) // whatever moved this host may have moved others
		d.mesh.Renew(p.ID, func(local, _ net.Addr) bool { return !mine[addressOf(local)] })
	}
	m := &wire.Moved{Host: d.job.HostID, Stamp: d.where.stamp, Gossip: net.JoinHostPort(addrs[0].String(), port), Data: data}
	ready := *d.ready
	ready.Gossip, ready.Data = m.Gossip, m.Data
	d.ready = &ready // for a launcher that takes over
	d.announce(ctx, m, func() {})
	d.loop.Go(func() { d.probeAgain(ctx, "", func() {}) })
}

// peerMoved takes the news that a peer is found elsewhere.
func (d *daemon) peerMoved(m *wire.Moved) {
	if known := d.where.peers[m.Host]; m.Host == d.job.HostID || known != nil && known.Stamp >= m.Stamp {
		return
	}
	d.where.peers[m.Host] = m
	if d.member.roster == nil {
		return
	}
	r := *d.member.roster
	d.locate(&r)
	d.member.roster = &r
	d.member.peers.Store(&r)
	there := hostsOf(m.Data)
	d.mesh.Renew(m.Host, func(_, remote net.Addr) bool { return !slices.Contains(there, addressOf(remote).String()) })
}

// locate puts into a roster what is known of where its hosts are, and tells gossip.
func (d *daemon) locate(r *wire.Roster) {
	r.Peers = slices.Clone(r.Peers)
	for i := range r.Peers {
		p := &r.Peers[i]
		if m := d.where.peers[p.ID]; m != nil {
			p.Gossip, p.Data = m.Gossip, m.Data
		}
		if p.ID == d.job.HostID {
			continue
		}
		if err := d.gossip.Route(p.ID, p.Gossip); err != nil {
			d.log.Warn("roster: address of a peer", "error", err)
		}
	}
}

// ownAddresses are all that this host has, on interfaces that are up or not.
func ownAddresses() map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	list, _ := net.InterfaceAddrs()
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			out[p.Addr().Unmap()] = true
		}
	}
	return out
}

// addressOf is the IP address of one end of a stream.
func addressOf(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// hostsOf are addresses without their port.
func hostsOf(data []string) []string {
	var out []string
	for _, s := range data {
		if host, _, err := net.SplitHostPort(s); err == nil {
			out = append(out, host)
		}
	}
	return out
}

package network

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"gorun/rendezvous/wire"
	"gorun/topology/probe"
)

// A host may get another address while a job runs: another lease of DHCP, a move to another network. It notices that
// itself, replaces the streams that went out from addresses it has no more, and notifies the others of where it is.
// They try from their side as well, so that one way that works is enough.

// candidates are this host's addresses as its peers dial them.
func (n *Network) candidates(addrs []netip.Addr) ([]string, error) {
	_, port, err := net.SplitHostPort(n.listener.Addr().String())
	if err != nil {
		return nil, fmt.Errorf("read listener address: %w", err)
	}
	var out []string
	for _, a := range addrs {
		out = append(out, net.JoinHostPort(a.String(), port))
	}
	return out, nil
}

// LookAround returns where this host is found if that is elsewhere than before, and nil if it is not. Streams that go
// out from addresses which are gone are renewed; others are the other hosts of the roster.
func (n *Network) LookAround(others []wire.Peer) *wire.Moved {
	interfaces, mine := probe.Interfaces(), map[netip.Addr]bool{} // on interfaces that are up or not
	for _, i := range interfaces {
		for _, p := range i.Prefixes {
			mine[p.Addr()] = true
		}
	}
	if hint, err := netip.ParseAddr(n.job.LocalIP); err == nil && !mine[hint.Unmap()] {
		n.job.LocalIP, n.lost = "", true // what leads here now is what leads to a peer
		for _, p := range others {
			if len(p.Data) > 0 {
				n.job.Toward, _, _ = net.SplitHostPort(p.Data[0])
				break
			}
		}
	}
	addrs, err := n.addresses(interfaces)
	if err != nil {
		return nil // for now there is none
	}
	data, err := n.candidates(addrs)
	if err != nil || slices.Equal(data, n.own) {
		return nil
	}
	_, port, err := net.SplitHostPort(n.gossip.Addr())
	if err != nil {
		return nil
	}
	n.own = data
	n.stamp++
	for _, p := range others {
		n.mesh.Renew(p.ID, func(local, _ net.Addr) bool { return !mine[addressOf(local)] })
	}
	return &wire.Moved{Host: n.job.HostID, Stamp: n.stamp, Gossip: net.JoinHostPort(addrs[0].String(), port), Data: data}
}

// Moved takes the news that a peer is found elsewhere, and reports whether it is news.
func (n *Network) Moved(m *wire.Moved) bool {
	if known := n.moved[m.Host]; m.Host == n.job.HostID || known != nil && known.Stamp >= m.Stamp {
		return false
	}
	n.moved[m.Host] = m
	return true
}

// Renew renews the streams to a peer that go elsewhere than where it is found now.
func (n *Network) Renew(m *wire.Moved) {
	there := HostsOf(m.Data)
	n.mesh.Renew(m.Host, func(_, remote net.Addr) bool { return !slices.Contains(there, addressOf(remote).String()) })
}

// Locate puts the latest addresses of its hosts into a roster, and passes them to gossip.
func (n *Network) Locate(r *wire.Roster) {
	r.Peers = slices.Clone(r.Peers)
	for i := range r.Peers {
		p := &r.Peers[i]
		if m := n.moved[p.ID]; m != nil {
			p.Gossip, p.Data = m.Gossip, m.Data
		}
		if p.ID == n.job.HostID {
			continue
		}
		if err := n.gossip.Route(p.ID, p.Gossip); err != nil {
			n.cfg.Log.Warn("roster: address of a peer", "error", err)
		}
	}
}

// addressOf is the IP address of one end of a stream.
func addressOf(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// HostsOf returns addresses without their port.
func HostsOf(data []string) []string {
	var out []string
	for _, s := range data {
		if host, _, err := net.SplitHostPort(s); err == nil {
			out = append(out, host)
		}
	}
	return out
}

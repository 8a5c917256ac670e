//go:build rdma

package network

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"gorun/collective/verbs"
	"gorun/collective/verbs/ibverbs"
	"gorun/worker/member"
)

// Streams of links go over RDMA if the job wants it and both ends can. Users get one line for each reason why they do
// not; nothing else changes then. Programs without the tag rdma have rdma_none.go.

// openRDMA makes the transport if the job wants one and this host can have it.
func (n *Network) openRDMA(post func(func())) {
	if !n.wantsRDMA() {
		return
	}
	tuning, err := verbs.ParseTuning(n.job.RDMATune)
	if err != nil {
		n.noRDMA(err)
		return
	}
	provider, ports, err := n.provider()
	if err != nil {
		n.noRDMA(err)
		return
	}
	cfg := verbs.Config{Provider: provider, Ports: ports, Tuning: tuning, Log: n.cfg.Log, Retry: func(peer, stream int) bool { return n.mesh.Reopen(peer, stream) }}
	if wanted := n.job.RDMA; wanted != "auto" && wanted != "on" {
		cfg.Devices = strings.Split(wanted, ",")
	}
	said := map[string]bool{}
	once := func(peer int, format string, what any) {
		post(func() {
			p, ok := member.Peer(n.cfg.Daemon.Peers(), peer)
			if text := fmt.Sprintf(format, p.Name, what); ok && !said[text] {
				said[text] = true
				n.cfg.Say("%s", text)
			}
		})
	}
	cfg.Problem = func(peer int, err error) {
		if !verbs.Broken(err) || n.job.Verbose {
			once(peer, "data to %s goes over TCP, not RDMA: %v", err)
		}
	}
	if n.job.Verbose {
		cfg.Carries = func(peer int, at verbs.Place) { once(peer, "data to %s goes over RDMA: %v", describePlace(at)) }
	}
	n.transport = verbs.New(cfg)
}

// provider loads the library and looks for ports.
func (n *Network) provider() (verbs.Provider, []verbs.Port, error) {
	provider, err := ibverbs.Load(n.job.Verbs)
	if err != nil {
		return nil, nil, err
	}
	ports, err := provider.Ports()
	if err == nil && len(ports) == 0 {
		err = errors.New("no RDMA device; load its driver, pass it to containers")
	}
	return provider, ports, err
}

// describePlace names the port and the GID of a queue pair.
func describePlace(at verbs.Place) string {
	kind := "InfiniBand"
	switch {
	case at.GID.RoCE2:
		kind = "RoCE v2"
	case at.Ethernet:
		kind = "RoCE v1"
	}
	return fmt.Sprintf("%s port %d, %s, GID %d (%s), packets of %d bytes", at.Device, at.Number, kind, at.GID.Index,
		netip.AddrFrom16(at.GID.Value).Unmap(), at.MTU)
}

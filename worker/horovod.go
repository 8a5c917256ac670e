package worker

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"gorun/collective/tcp"
	"gorun/rendezvous/kvhttp"
	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/worker/rankenv"
)

// Ranks of stock Horovod find each other through a key-value service. It runs beside the daemon of the
// first host, because ranks reach that one anyway, and only in jobs that do without our drop-in.

// openKV listens; whether this host's service is the one that is used, the roster tells.
func (d *daemon) openKV(ctx context.Context, bind string) error {
	if d.job.Shim {
		return nil
	}
	var err error
	if d.kv, err = (&net.ListenConfig{Control: tcp.SmallSegments}).Listen(ctx, "tcp", net.JoinHostPort(bind, "0")); err != nil {
		return fmt.Errorf("listen for Horovod's ranks: %w", err)
	}
	return nil
}

// kvPort returns where it listens, 0 for nowhere.
func (d *daemon) kvPort() int {
	if d.kv == nil {
		return 0
	}
	return d.kv.Addr().(*net.TCPAddr).Port
}

// serveKV serves the hosts of the roster if this host is its first; otherwise nobody will ask here.
func (d *daemon) serveKV(ctx context.Context) {
	switch {
	case d.kv == nil:
		return
	case d.job.Elastic: // this host may come to be the first
	case d.roster.Epoch > 1:
		return
	case d.job.HostID != d.roster.Peers[0].ID:
		d.kv.Close()
		return
	}
	store := kvhttp.New(func(a netip.Addr) bool { return a.IsLoopback() || isMember(d.peers.Load(), a) })
	d.wg.Go(func() {
		if err := store.Serve(ctx, d.kv); err != nil {
			d.log.Warn("Horovod's ranks will not find each other", "err", err)
		}
	})
}

// isMember is true for the addresses of a roster's hosts.
func isMember(r *wire.Roster, a netip.Addr) bool {
	for _, p := range r.Peers {
		for _, data := range p.Data {
			if at, err := netip.ParseAddrPort(data); err == nil && at.Addr().Unmap() == a {
				return true
			}
		}
	}
	return false
}

// stockFor returns where a rank of stock Horovod finds the others, nil if programs get gorun's drop-in.
func (d *daemon) stockFor(ctx context.Context, r wire.Rank) (*rankenv.Stock, error) {
	if d.job.Shim {
		return nil, nil
	}
	s := &rankenv.Stock{Addr: d.roster.MasterAddr, Port: d.roster.KVPort}
	if d.job.Elastic {
		var err error
		if s.Addr, s.Port, err = d.openStock(ctx, r); err != nil {
			return nil, err
		}
	}
	if self, _ := peerOf(d.roster, d.job.HostID); len(self.Data) > 0 {
		at, _ := netip.ParseAddrPort(self.Data[0])
		s.NIC = nicOf(d.self, at.Addr())
	}
	return s, nil
}

// nicOf names the interface that has an address.
func nicOf(h topology.Host, a netip.Addr) string {
	if a.IsLoopback() {
		return "lo"
	}
	return h.NICAt(a)
}

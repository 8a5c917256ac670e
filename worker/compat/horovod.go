package compat

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"

	"gorun/collective/tcp"
	"gorun/rendezvous/kvhttp"
	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/worker/loop"
	"gorun/worker/member"
	"gorun/worker/rankenv"
)

// Horovod is the rendezvous of the ranks of this host that run stock Horovod. A job that gives programs gorun's
// drop-in has none.
type Horovod struct {
	cfg    loop.Component
	daemon Daemon
	seal   *tls.Config  // of connections between hosts
	client *http.Client // by which the ranks of this host reach the store
	kv     net.Listener // nil if no rank of stock Horovod is expected
	served bool         // Serve was called
	stock  stockRanks
}

// Daemon is what the rendezvous needs from its daemon.
type Daemon interface {
	// World returns the ranks' world. The loop alone calls it.
	World() member.View
	// Rejoining takes note that a rank has left its world and asks for the next one.
	Rejoining(*wire.Rejoining)
}

// NewHorovod returns a rendezvous that does not listen yet.
func NewHorovod(cfg loop.Component, daemon Daemon) *Horovod {
	return &Horovod{cfg: cfg, daemon: daemon, stock: newStockRanks()}
}

// Listen opens the key-value service; the roster names the host whose service ranks use. The key is for this purpose
// alone.
func (h *Horovod) Listen(ctx context.Context, bind string, key func(purpose string) ([]byte, error)) error {
	if h.cfg.Job.Shim {
		return nil
	}
	seed, err := key("stock horovod")
	if err != nil {
		return err
	}
	if h.seal, err = kvhttp.Seal(seed); err != nil {
		return err
	}
	h.client = kvhttp.Client(h.seal)
	if h.kv, err = (&net.ListenConfig{Control: tcp.SmallSegments}).Listen(ctx, "tcp",
		net.JoinHostPort(bind, "0")); err != nil {
		return fmt.Errorf("listen for Horovod's ranks: %w", err)
	}
	return nil
}

// Port returns where the service listens, 0 for nowhere.
func (h *Horovod) Port() int {
	if h.kv == nil {
		return 0
	}
	return h.kv.Addr().(*net.TCPAddr).Port
}

// Serve serves the hosts of the first roster if this host is its first; otherwise no rank will ask here. Only the
// first call counts.
func (h *Horovod) Serve(ctx context.Context) {
	r := h.daemon.World().Roster
	served := h.served
	h.served = true
	switch {
	case h.kv == nil || served:
		return
	case h.cfg.Job.Elastic: // this host may come to be the first
	case r.Epoch > 1:
		return
	case h.cfg.Job.HostID != r.Peers[0].ID:
		h.kv.Close()
		return
	}
	store := kvhttp.New()
	h.cfg.Loop.Go(func() {
		if err := store.Serve(ctx, h.kv, h.seal); err != nil {
			h.cfg.Log.Warn("Horovod's ranks will not find each other", "err", err)
		}
	})
}

// Connect returns where a rank that is about to start finds the others, nil if programs get gorun's drop-in. self is
// this host.
func (h *Horovod) Connect(ctx context.Context, r wire.Rank, self topology.Host) (*rankenv.Stock, error) {
	if h.cfg.Job.Shim {
		return nil, nil
	}
	w := h.daemon.World()
	s := &rankenv.Stock{}
	var err error
	if s.Addr, s.Port, err = h.openMember(ctx, w, r); err != nil {
		return nil, err
	}
	if p, _ := member.Peer(w.Roster, h.cfg.Job.HostID); len(p.Data) > 0 {
		at, _ := netip.ParseAddrPort(p.Data[0])
		s.NIC = nicOf(self, at.Addr())
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

// Close ends the key-value service.
func (h *Horovod) Close() {
	if h.kv != nil {
		h.kv.Close()
		h.client.CloseIdleConnections()
	}
}

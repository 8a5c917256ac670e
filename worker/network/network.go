// Package network connects a host with the other hosts of its job: gossip, the links that carry data, and where each
// host is found.
//
// A host has candidates, addresses at which peers reach it, best first (address.go); the streams of a link take turns
// at the addresses of the NICs that the user chose (routes.go). If a host gets another address while the job runs, it
// notifies the others (relocate.go); if these have moved as well, the launcher does. Every key is
// derived from the job's secret (keys.go). If the job wants it and both hosts can, streams go over RDMA (rdma.go).
package network

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"gorun/collective/link"
	"gorun/collective/tcp"
	"gorun/rendezvous/gossip"
	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/worker/loop"
	"gorun/worker/member"
)

// Daemon is what a network needs from its daemon.
type Daemon interface {
	// Host returns what this machine is like. The loop alone calls it.
	Host() topology.Host
	// Peers returns the latest roster. Any goroutine may call it.
	Peers() *wire.Roster
	// Lost takes note that the link to a peer is broken for good.
	Lost(peer int, err error)
}

// Config is what a network is made from.
type Config struct {
	loop.Component
	Daemon Daemon
	Lease  time.Duration // how long gossip waits for a silent host
	NoRDMA error         // why this program cannot use RDMA, nil if it can or nobody knows
}

// Network is how this host reaches the others. The daemon's loop alone calls its methods, but for Greet,
// NotifyNow, Send and Sent.
type Network struct {
	cfg       Config
	job       *wire.Job
	gossip    *gossip.Gossip
	mesh      *link.Mesh                     // nil until Connect
	listener  net.Listener                   // of links
	transport transport                      // of streams over RDMA, nil if there is none
	nics      []string                       // the interfaces that the user chose, nil for none
	chosen    atomic.Pointer[[]topology.NIC] // the same, for dialers
	own       []string                       // candidates of this host, as its peers know them
	bind      string                         // where it listens
	stamp     uint64                         // of the last news of where this host is
	lost      bool                           // the address at which the launcher reached this host is gone
	moved     map[int]*wire.Moved            // peers that are not where they were when they joined
	reported  map[int]bool                   // the peers whose links Each returned last
}

// New returns a network that is not open.
func New(cfg Config) *Network {
	n := &Network{cfg: cfg, job: cfg.Job, moved: map[int]*wire.Moved{}}
	n.nics = topology.NICNames(n.job.NICs, cfg.Daemon.Host().NICs)
	n.Choose()
	return n
}

// Open listens for gossip and links at the addresses where others find this host.
func (n *Network) Open(ctx context.Context, addrs []netip.Addr) error {
	key, err := n.Key("gossip")
	if err != nil {
		return err
	}
	n.bind = bindAddress(addrs, n.job.Open)
	if n.gossip, err = gossip.Listen(gossip.Config{ID: n.job.HostID, Job: n.job.ID, Key: key, Bind: n.bind,
		Advertise: addrs[0].String(), Lease: n.cfg.Lease, Log: n.cfg.Log}); err != nil {
		return err
	}
	if n.listener, err = (tcp.Options{}).Listen(ctx, net.JoinHostPort(n.bind, "0")); err != nil {
		return fmt.Errorf("listen for links: %w", err)
	}
	n.own, err = n.candidates(addrs)
	return err
}

// Links returns the links to other hosts, nil until Connect.
func (n *Network) Links() *link.Mesh { return n.mesh }

// Bind returns the address at which this host listens for others.
func (n *Network) Bind() string { return n.bind }

// Own returns the addresses for data of this host, as its peers know them.
func (n *Network) Own() []string { return n.own }

// NICs returns the names of the interfaces that the user chose on this host, nil for none.
func (n *Network) NICs() []string { return n.nics }

// Connect makes the mesh of links, whose segments go to handler.
func (n *Network) Connect(ctx context.Context, handler link.Handler) error {
	key, err := n.Key("link")
	if err != nil {
		return err
	}
	post := func(f func()) { n.cfg.Loop.Post(ctx, f) }
	n.openRDMA(post)
	n.mesh, err = link.NewMesh(link.Config{Self: n.job.HostID, Job: n.job.ID, Key: key,
		Encrypt: n.job.Encrypt, Check: n.job.Checksum, Streams: n.job.Streams,
		Handler: handler, Listener: n.listener, Log: n.cfg.Log, Upgrade: n.upgrade(),
		Dial: func(ctx context.Context, peer, stream int) (net.Conn, error) {
			return n.dial(ctx, tcp.Options{}, peer, stream)
		},
		Narrow: func(ctx context.Context, peer, stream, packet int) (net.Conn, error) {
			return n.dial(ctx, tcp.Options{Segment: packet - headers}, peer, stream)
		},
		Narrowed: func(found link.Narrowing) { post(func() { n.narrowed(found) }) },
		Damaged:  func(found link.Damage) { post(func() { n.damaged(found) }) },
		Lost:     func(peer int, err error) { post(func() { n.cfg.Daemon.Lost(peer, err) }) },
	})
	return err
}

// transport is verbs.Transport, which only some programs contain.
type transport interface {
	Upgrade(ctx context.Context, conn net.Conn, peer, stream int) (net.Conn, error)
	Device(from net.Addr) string
	Failures() uint64
	Pause() (drain func(within time.Duration))
	Resume()
	Close()
}

// upgrade is the link's Config.Upgrade.
func (n *Network) upgrade() func(ctx context.Context, conn net.Conn, peer, stream int) (net.Conn, error) {
	if n.transport == nil {
		return nil
	}
	return n.transport.Upgrade
}

// drainTime is how long devices may take for what was posted; it is less than what a write may take that gets no answer.
const drainTime = 250 * time.Millisecond

// PauseRDMA has links go on by TCP until ResumeRDMA, and calls then when no device holds on to memory of this process,
// or ResumeRDMA has come first.
func (n *Network) PauseRDMA(ctx context.Context, then func()) {
	if n.transport == nil {
		then()
		return
	}
	drain := n.transport.Pause()
	n.cfg.Loop.Go(func() {
		drain(drainTime)
		n.cfg.Loop.Post(ctx, then)
	})
}

// ResumeRDMA lets links go over RDMA again, if they did.
func (n *Network) ResumeRDMA() {
	if n.transport != nil {
		n.transport.Resume()
	}
}

// wantsRDMA reports whether the job wants RDMA, and has other hosts.
func (n *Network) wantsRDMA() bool { return n.job.RDMA != "" && n.job.RDMA != "off" && !n.job.Alone }

// noRDMA reports why this host has no RDMA, unless the job does without.
func (n *Network) noRDMA(err error) {
	if n.job.RDMA != "auto" || n.job.Verbose {
		n.cfg.Say("data goes over TCP, not RDMA: %v", err)
	}
}

// dial opens a stream to a peer.
func (n *Network) dial(ctx context.Context, transport tcp.Options, peer, stream int) (net.Conn, error) {
	p, ok := member.Peer(n.cfg.Daemon.Peers(), peer)
	if !ok {
		return nil, fmt.Errorf("dial host id %d: not in the roster", peer)
	}
	return transport.Dial(ctx, routes(p.Data, *n.chosen.Load(), stream))
}

// Addr returns the address at which others find this host's gossip.
func (n *Network) Addr() string { return n.gossip.Addr() }

// Events brings what gossip notices.
func (n *Network) Events() <-chan gossip.Event { return n.gossip.Events() }

// Meet begins to gossip and to take links.
func (n *Network) Meet(ctx context.Context) error {
	if err := n.gossip.Open(); err != nil {
		return err
	}
	n.cfg.Loop.Go(func() {
		n.mesh.Run(ctx)
		if n.transport != nil {
			n.transport.Close()
		}
	})
	return nil
}

// Greet makes this host known to the gossip of others, whose addresses these are.
func (n *Network) Greet(ctx context.Context, addrs []string) error { return n.gossip.Join(ctx, addrs) }

// Notify sends a message to a peer without waiting. It may get lost.
func (n *Network) Notify(peer int, m wire.Message) { n.cfg.Loop.Go(func() { n.NotifyNow(peer, m) }) }

// NotifyNow is Notify for a goroutine that may wait.
func (n *Network) NotifyNow(peer int, m wire.Message) {
	b, err := wire.Marshal(m)
	if err == nil {
		err = n.gossip.Send(peer, b)
	}
	if err != nil {
		n.cfg.Log.Debug("gossip: not sent", "to", peer, "error", err)
	}
}

// headers are what IPv6, or IPv4, and TCP put before a segment, in bytes, at most.
const headers = 60

// Send sends a segment over the link to a peer. The engine calls it, which is made before the mesh.
func (n *Network) Send(peer int, s *link.Segment) { n.mesh.Send(peer, s) }

// Sent counts the bytes that went to other hosts, and those of them that went over RDMA.
func (n *Network) Sent() (bytes, overRDMA uint64) {
	t := n.Totals()
	return t.SentBytes, t.RDMABytes
}

// Totals returns what the links have done for the job.
func (n *Network) Totals() wire.Links {
	if n.mesh == nil {
		return wire.Links{}
	}
	l := linksOf(n.mesh.Totals())
	if n.transport != nil {
		l.RDMAFailures = n.transport.Failures()
	}
	return l
}

// Each returns what the links that have carried most have done for the job, at most that many. A link stays among them
// until another one has carried twice as much, so that links that carry about the same do not take turns.
func (n *Network) Each(most int) (all []wire.LinkUsage) {
	if n.mesh == nil {
		return nil
	}
	for _, l := range n.mesh.Links() {
		all = append(all, wire.LinkUsage{Peer: l.Peer, Links: linksOf(l.Totals), Queued: l.Queued})
	}
	all = busiest(all, n.reported, most)
	n.reported = map[int]bool{}
	for _, l := range all {
		n.reported[l.Peer] = true
	}
	return all
}

// busiest returns the links that have carried most. Those that were reported before count twice.
func busiest(all []wire.LinkUsage, reported map[int]bool, most int) []wire.LinkUsage {
	weight := func(l wire.LinkUsage) uint64 {
		if reported[l.Peer] {
			return 2 * l.Links.SentBytes
		}
		return l.Links.SentBytes
	}
	slices.SortFunc(all, func(a, b wire.LinkUsage) int {
		return cmp.Or(cmp.Compare(weight(b), weight(a)), cmp.Compare(a.Peer, b.Peer))
	})
	return all[:min(len(all), most)]
}

func linksOf(t link.Totals) wire.Links {
	return wire.Links{SentBytes: t.SentBytes, RDMABytes: t.UpgradedBytes, ResentBytes: t.ResentBytes, ResentSegments: t.ResentSegments,
		Renewed: t.Renewed, Damaged: t.Damaged, BusyBytes: t.BusyBytes, BusyUS: t.BusyTime.Microseconds()}
}

// narrowed warns that packets of a size that both NICs take do not reach a peer.
func (n *Network) narrowed(found link.Narrowing) {
	p, ok := member.Peer(n.cfg.Daemon.Peers(), found.Peer)
	if !ok {
		return
	}
	text := fmt.Sprintf("packets of %d bytes to %s are lost on the way, small ones arrive: "+
		"going on with %d bytes, which is slower",
		found.Lost, p.Name, found.On)
	if found.On == 0 {
		text = fmt.Sprintf("packets of %d bytes are lost on the way from %s here to %s, %s, only smaller ones arrive: "+
			"no data passes there",
			found.Lost, n.withNIC(found.Local), p.Name, addressOf(found.Remote))
	}
	n.cfg.Say("%s; to see what passes: gorun doctor -H %s,%s", text, n.job.Name, p.Name)
}

// damaged warns that data from a peer was damaged, and where: the first time, the tenth, the hundredth and so on.
func (n *Network) damaged(found link.Damage) {
	for times := found.Times; times > 1; times /= 10 {
		if times%10 != 0 {
			return
		}
	}
	p, ok := member.Peer(n.cfg.Daemon.Peers(), found.Peer)
	if !ok {
		return
	}
	text := fmt.Sprintf("data from %s came damaged, %s so far, and was sent again: "+
		"between %s there and %s here a NIC, a switch or a hypervisor is broken, or somebody changes it",
		p.Name, topology.Count(int(found.Times), "time"), addressOf(found.Remote), n.withNIC(found.Local))
	if !n.job.Checksum && !n.job.Encrypt {
		text += "; large tensors are not checked, and may be wrong: run without --checksum=false"
	}
	n.cfg.Say("%s", text)
}

// withNIC is a socket's address on this host, with the name of the NIC that has it.
func (n *Network) withNIC(a net.Addr) string {
	at := addressOf(a)
	if nic := n.cfg.Daemon.Host().NICAt(at); nic != "" {
		return fmt.Sprintf("%s (%s)", at, nic)
	}
	return at.String()
}

// ListenFor listens at this host's address for hosts that want something.
func (n *Network) ListenFor(ctx context.Context, what string) (net.Listener, error) {
	l, err := (&net.ListenConfig{Control: tcp.SmallSegments}).Listen(ctx, "tcp", net.JoinHostPort(n.bind, "0"))
	if err != nil {
		return nil, fmt.Errorf("listen for hosts that miss %s: %w", what, err)
	}
	return l, nil
}

// CloseListener ends what listens for links.
func (n *Network) CloseListener() {
	if n.listener != nil {
		n.listener.Close()
	}
}

// Close leaves gossip.
func (n *Network) Close() error {
	if n.gossip == nil {
		return nil
	}
	return n.gossip.Close()
}

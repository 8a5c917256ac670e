// Package gossip tells a daemon which other daemons of the job are there, and carries small messages
// between them. It adapts memberlist, is its only importer, and adds no decision: who is in the world
// is decided in rendezvous/epoch, and silence here only means "suspected".
//
// Everything on the network is encrypted and authenticated with the job's key (AES-GCM) before it is
// parsed. Events arrive on one channel that is never full: gossip must not wait for its reader.
package gossip

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"gorun/collective/tcp"
)

// Lease is how long a member may be silent until it has Left, if its Config does not say.
const Lease = 30 * time.Second

// Event is something gossip noticed; Message is nil unless a peer sent one.
type Event struct {
	Peer    int
	Kind    Kind
	Message []byte
}

// Kind says what happened.
type Kind int

// Kinds of events.
const (
	Joined Kind = iota
	Left        // silent for long, or said goodbye
	Message
)

// Config of one daemon's gossip.
type Config struct {
	ID        int           // host id, the member's name
	Job       string        // members of other jobs are refused by this label
	Key       []byte        // 32 bytes
	Bind      string        // address to listen on
	Advertise string        // address the others use
	Port      int           // to listen at, 0 for a free one
	Name      string        // in place of ID, for members that are not numbered: see Members
	Meta      []byte        // what the others know of this member, at most 512 bytes
	Lease     time.Duration // how long a member may be silent, 0 for Lease
	Log       *slog.Logger
}

// Gossip is a running member. Close ends it.
type Gossip struct {
	transport *transport
	addr      string
	id        int
	events    chan Event
	box       mailbox
	done      chan struct{}
	pump      sync.WaitGroup

	mu      sync.Mutex
	list    *memberlist.Memberlist     // nil until Open
	members map[string]memberlist.Node // by name; see remember

	config *memberlist.Config // of list, which reads it under the lock under which it calls remember and forget
	lease  time.Duration

	meta    atomic.Pointer[[]byte]
	changes chan struct{}
}

// Start is Listen and Open.
func Start(cfg Config) (*Gossip, error) {
	g, err := Listen(cfg)
	if err != nil {
		return nil, err
	}
	if err := g.Open(); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// Listen makes a member that has an address, and neither hears nor says anything until Open: those that come before
// wait.
func Listen(cfg Config) (*Gossip, error) {
	g := &Gossip{id: cfg.ID, members: map[string]memberlist.Node{}, events: make(chan Event), done: make(chan struct{}), changes: make(chan struct{}, 1)}
	g.meta.Store(&cfg.Meta)
	g.box.wake = make(chan struct{}, 1)
	c := memberlist.DefaultLANConfig()
	c.Name = cmp.Or(cfg.Name, nameOf(cfg.ID))
	c.Label = "gorun/" + cfg.Job
	c.SecretKey = cfg.Key
	c.BindAddr, c.BindPort = cfg.Bind, cfg.Port
	c.AdvertiseAddr, c.AdvertisePort = cfg.Advertise, cfg.Port
	c.Delegate, c.Events = g, g
	c.Logger = log.New(logWriter{cfg.Log}, "", 0)
	// A VM may be silent for seconds while it moves: rather a slow verdict than a wrong one. A crash is
	// noticed at once by the links (RST), not here.
	g.config, g.lease = c, cmp.Or(cfg.Lease, Lease)
	c.SuspicionMult = suspicion(g.lease, c.ProbeInterval, 1)
	c.SuspicionMaxTimeoutMult = 1
	// A member that misses answers would wait for the next ones up to eight times as long, as it may be slow itself; but it misses
	// them too where several are lost at once, and asks one after the other. Who is suspected has its lease to answer.
	c.AwarenessMaxMultiplier = 1
	c.GossipToTheDeadTime = 10 * time.Minute
	c.DeadNodeReclaimTime = time.Second
	c.PushPullInterval = 10 * time.Second
	c.GossipInterval = 50 * time.Millisecond
	if len(cfg.Meta) == 0 { // Meta may need more
		c.UDPBufferSize = tcp.LeastPacket - 20 - 8
	}
	c.EnableCompression = false    // messages are small, and each would cost two tables of tens of kilobytes
	c.TCPTimeout = 3 * time.Second // Join cannot be cancelled, so it must not take long
	var err error
	if g.transport, err = listen(c); err != nil {
		return nil, fmt.Errorf("start gossip on %s: %w", cfg.Bind, err)
	}
	c.Transport = g.transport
	ip, port, err := g.transport.FinalAdvertiseAddr(c.AdvertiseAddr, c.AdvertisePort)
	if err != nil {
		g.transport.abandon()
		return nil, fmt.Errorf("start gossip on %s: %w", cfg.Bind, err)
	}
	g.addr = net.JoinHostPort(ip.String(), strconv.Itoa(port))
	return g, nil
}

// errNotOpen says that a member only listens yet.
var errNotOpen = errors.New("not opened yet")

// Open makes it a cluster of one, until Join. It is called once.
func (g *Gossip) Open() error {
	if g.opened() != nil {
		return fmt.Errorf("start gossip at %s: opened already", g.addr)
	}
	list, err := memberlist.Create(g.config)
	if err != nil {
		return fmt.Errorf("start gossip at %s: %w", g.addr, err)
	}
	g.mu.Lock()
	g.list = list
	g.mu.Unlock()
	g.pump.Go(g.run)
	return nil
}

// opened is what Open has made, nil before.
func (g *Gossip) opened() *memberlist.Memberlist {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.list
}

// nameOf is the name of a member that is numbered.
func nameOf(id int) string { return strconv.Itoa(id) }

// Addr is where the others reach this member, as host:port.
func (g *Gossip) Addr() string { return g.addr }

// Events delivers what happened, in order. It is closed by Close, if there was an Open.
func (g *Gossip) Events() <-chan Event { return g.events }

// Join contacts the given members; one answer is enough, the rest is learned.
func (g *Gossip) Join(ctx context.Context, addrs []string) error {
	list := g.opened()
	if list == nil {
		return fmt.Errorf("join gossip at %s: %w", strings.Join(addrs, ", "), errNotOpen)
	}
	delay := 50 * time.Millisecond
	for {
		_, err := list.Join(addrs)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("join gossip at %s: %w", strings.Join(addrs, ", "), innermost(err))
		case <-time.After(delay):
		}
		delay = min(2*delay, time.Second)
	}
}

// TryJoin contacts a member once. It takes some seconds if nobody answers.
func (g *Gossip) TryJoin(addr string) error {
	list := g.opened()
	if list == nil {
		return fmt.Errorf("join gossip at %s: %w", addr, errNotOpen)
	}
	if _, err := list.Join([]string{addr}); err != nil {
		return fmt.Errorf("join gossip at %s: %w", addr, innermost(err))
	}
	return nil
}

// innermost takes memberlist's lists and prefixes off an error.
func innermost(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	var each []string // a list has every error on a line of its own, behind a star
	for line := range strings.Lines(err.Error()) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), "* "); ok {
			each = append(each, text)
		}
	}
	if len(each) > 0 {
		return errors.New(strings.Join(each, "; "))
	}
	return err
}

// Send gives a peer a message over a connection of its own. The peer may still miss it: callers repeat
// what matters.
func (g *Gossip) Send(peer int, msg []byte) error {
	n, ok := g.find(nameOf(peer))
	list := g.opened()
	if !ok || list == nil {
		return fmt.Errorf("send to host %d: not a member", peer)
	}
	b := binary.LittleEndian.AppendUint32(nil, uint32(g.id))
	if err := list.SendReliable(&n, append(b, msg...)); err != nil {
		return fmt.Errorf("send to host %d: %w", peer, err)
	}
	return nil
}

// Close leaves without saying so and waits for the event pump.
func (g *Gossip) Close() error {
	list := g.opened()
	if list == nil {
		return g.transport.abandon()
	}
	err := list.Shutdown()
	close(g.done)
	g.pump.Wait()
	return err
}

// run hands events to the reader from a queue of any length.
func (g *Gossip) run() {
	defer close(g.events)
	for {
		select {
		case <-g.done:
			return
		case <-g.box.wake:
		}
		for _, ev := range g.box.take() {
			select {
			case g.events <- ev:
			case <-g.done:
				return
			}
		}
	}
}

func (g *Gossip) member(kind Kind, n *memberlist.Node) {
	g.changed()
	if id, err := strconv.Atoi(n.Name); err == nil && id != g.id {
		g.box.put(Event{Peer: id, Kind: kind})
	}
}

// The delegates of memberlist. They run under its locks and only queue.

// NotifyJoin implements memberlist.EventDelegate.
func (g *Gossip) NotifyJoin(n *memberlist.Node) {
	g.remember(n)
	g.member(Joined, n)
}

// NotifyLeave implements memberlist.EventDelegate.
func (g *Gossip) NotifyLeave(n *memberlist.Node) {
	g.forget(n)
	g.member(Left, n)
}

// NotifyUpdate implements memberlist.EventDelegate.
func (g *Gossip) NotifyUpdate(n *memberlist.Node) {
	g.remember(n)
	g.changed()
}

// NotifyMsg implements memberlist.Delegate; b is only lent.
func (g *Gossip) NotifyMsg(b []byte) {
	if len(b) < 4 {
		return
	}
	g.box.put(Event{Peer: int(binary.LittleEndian.Uint32(b)), Kind: Message, Message: append([]byte(nil), b[4:]...)})
}

// NodeMeta implements memberlist.Delegate.
func (g *Gossip) NodeMeta(int) []byte { return *g.meta.Load() }

// GetBroadcasts implements memberlist.Delegate.
func (g *Gossip) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState implements memberlist.Delegate.
func (g *Gossip) LocalState(bool) []byte { return nil }

// MergeRemoteState implements memberlist.Delegate.
func (g *Gossip) MergeRemoteState([]byte, bool) {}

// mailbox is an unbounded queue with a wake-up.
type mailbox struct {
	mu    sync.Mutex
	queue []Event
	wake  chan struct{}
}

func (m *mailbox) put(ev Event) {
	m.mu.Lock()
	m.queue = append(m.queue, ev)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *mailbox) take() []Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	q := m.queue
	m.queue = nil
	return q
}

// logWriter turns memberlist's "[LEVEL] memberlist: …" lines into debug records: a ping that fails is
// nothing a user should read.
type logWriter struct{ log *slog.Logger }

func (w logWriter) Write(b []byte) (int, error) {
	w.log.Debug(strings.TrimSpace(string(b)))
	return len(b), nil
}

var _ io.Writer = logWriter{}

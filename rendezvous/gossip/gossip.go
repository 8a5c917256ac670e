// Package gossip informs a daemon about the other daemons of the job, and carries small messages between them. It wraps
// memberlist, is its only importer, and makes no decision: rendezvous/epoch decides who is in the world, and silence
// here only means "suspect".
//
// All traffic is encrypted and authenticated with the job's key (AES-GCM) before it is parsed. Events arrive on one
// channel that never blocks the sender, because gossip must not wait for its reader.
package gossip

import (
	"cmp"
	"context"
	"crypto/fips140"
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
	"gorun/rendezvous/liveness"
)

// Event is a change that gossip noticed, or a message from a peer; Message is nil otherwise.
type Event struct {
	Peer    int
	Kind    Kind
	Message []byte
}

// Kind is the kind of an Event.
type Kind int

// Kinds of events.
const (
	Joined Kind = iota
	Left        // silent for the lease, or it left by itself
	Message
)

// Config configures one daemon's gossip.
type Config struct {
	ID        int           // host id, the member's name
	Job       string        // members of other jobs have another label and are refused
	Key       []byte        // 32 bytes
	Accept    [][]byte      // keys that others may still use, while Key replaces them or is replaced
	Bind      string        // address to listen on
	Advertise string        // address the others use
	Port      int           // port to listen on, 0 for a free one
	Name      string        // replaces ID for members without host ids: see Members; members may share it
	Meta      []byte        // published to the other members, at most 512 bytes
	Lease     time.Duration // how long a member may be silent, 0 for the default of package liveness
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

	config *memberlist.Config // of list, which reads it under the lock it holds while it calls remember and forget
	lease  time.Duration

	meta    atomic.Pointer[[]byte]
	changes chan struct{}
}

// Start combines Listen and Open.
func Start(cfg Config) (*Gossip, error) {
	if err := allowed(); err != nil {
		return nil, err
	}
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

// Listen creates a member that has an address but neither receives nor sends until Open; early contacts wait.
func Listen(cfg Config) (*Gossip, error) {
	g := &Gossip{id: cfg.ID, members: map[string]memberlist.Node{}, events: make(chan Event), done: make(chan struct{}), changes: make(chan struct{}, 1)}
	g.meta.Store(&cfg.Meta)
	g.box.wake = make(chan struct{}, 1)
	c := memberlist.DefaultLANConfig()
	c.Name = cmp.Or(cfg.Name, nameOf(cfg.ID))
	c.Label = "gorun/" + cfg.Job
	c.BindAddr, c.BindPort = cfg.Bind, cfg.Port
	c.AdvertiseAddr, c.AdvertisePort = cfg.Advertise, cfg.Port
	c.Delegate, c.Events = g, g
	c.Logger = log.New(logWriter{cfg.Log}, "", 0)
	// A VM may be silent for seconds while it moves: a slow verdict is better than a wrong one. Links notice a crash at
	// once (RST); gossip need not.
	g.config, g.lease = c, cmp.Or(cfg.Lease, liveness.Default().Lease)
	c.SuspicionMult = suspicion(g.lease, c.ProbeInterval, 1)
	c.SuspicionMaxTimeoutMult = 1
	// memberlist would wait up to eight times as long after missed answers, in case this member is the slow one. But
	// answers are also missed when several members are lost at once, since it probes one after another. A suspect has
	// its lease to answer.
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
	if c.Keyring, err = memberlist.NewKeyring(cfg.Accept, cfg.Key); err != nil {
		return nil, fmt.Errorf("start gossip on %s: %w", cfg.Bind, err)
	}
	if g.transport, err = listen(c); err != nil {
		return nil, fmt.Errorf("start gossip on %s: %w", cfg.Bind, err)
	}
	c.Transport = g.transport
	ip, port, err := g.transport.FinalAdvertiseAddr(c.AdvertiseAddr, c.AdvertisePort)
	if err != nil {
		g.transport.Shutdown()
		return nil, fmt.Errorf("start gossip on %s: %w", cfg.Bind, err)
	}
	g.addr = net.JoinHostPort(ip.String(), strconv.Itoa(port))
	if cfg.Name != "" {
		c.Name = cfg.Name + nameEnd + g.addr
	}
	return g, nil
}

// errNotOpen means that the member only listens so far.
var errNotOpen = errors.New("not opened yet")

// Open starts the member, as a cluster of one until Join. It is called once.
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

// opened returns the memberlist that Open created, nil before.
func (g *Gossip) opened() *memberlist.Memberlist {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.list
}

// nameEnd separates a name from an address in the name that memberlist knows. memberlist refuses a member that comes
// back at another address as long as the former one may live; with the address, the two have different names. It sorts
// before every character of a name.
const nameEnd = " "

// nameOf returns the name of a member with a host id.
func nameOf(id int) string { return strconv.Itoa(id) }

// Addr returns the address at which other members reach this one, as host:port.
func (g *Gossip) Addr() string { return g.addr }

// Events delivers events in order. Close closes the channel if Open was called.
func (g *Gossip) Events() <-chan Event { return g.events }

// Join contacts the given members until ctx ends, or once if it has ended. One answer is enough; gossip supplies the rest.
func (g *Gossip) Join(ctx context.Context, addrs []string) error {
	if err := allowed(); err != nil {
		return err
	}
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

// innermost strips memberlist's lists and prefixes from an error.
func innermost(err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err
	}
	var each []string // each line of a list has one error, after a star
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

// Send sends a message to a peer on a connection of its own. The message may be lost; callers repeat what matters.
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

// Close stops without notifying the other members, and waits for the event pump.
func (g *Gossip) Close() error {
	list := g.opened()
	if list == nil {
		return g.transport.Shutdown()
	}
	err := list.Shutdown()
	close(g.done)
	g.pump.Wait()
	return err
}

// run passes events to the reader through an unbounded queue.
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

// memberlist's delegates. They run under its locks and only queue.

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

// NotifyMsg implements memberlist.Delegate. b is valid only during the call.
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

// logWriter turns memberlist's "[LEVEL] memberlist: …" lines into debug records: a failed ping is nothing a user should
// read.
type logWriter struct{ log *slog.Logger }

func (w logWriter) Write(b []byte) (int, error) {
	w.log.Debug(strings.TrimSpace(string(b)))
	return len(b), nil
}

var _ io.Writer = logWriter{}

// allowed returns an error where memberlist could not encrypt: FIPS 140-only mode refuses AES-GCM with nonces that are
// made outside of Go's module, even random ones. GODEBUG=fips140=on does not.
func allowed() error {
	if fips140.Enforced() {
		return errors.New("FIPS 140-only mode (GODEBUG=fips140=only) refuses the encryption of gossip; fips140=on allows it")
	}
	return nil
}

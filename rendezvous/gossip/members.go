package gossip

import (
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/hashicorp/memberlist"
)

// Member is a member by its name, for those who are not numbered.
type Member struct {
	Name, Addr string // Addr without a port
	Gossip     string // host:port
	Meta       []byte
}

// Members are those that answer, this one among them, in no order.
func (g *Gossip) Members() []Member {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []Member
	for _, n := range g.members {
		out = append(out, Member{n.Name, n.Addr.String(), n.Address(), n.Meta})
	}
	return out
}

// remember keeps a copy of a member: memberlist calls it under its lock, and goes on changing its own. Those that
// it hands out later (Members) are changed while they are read.
func (g *Gossip) remember(n *memberlist.Node) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.members[n.Name] = memberlist.Node{Name: n.Name, Addr: slices.Clone(n.Addr), Port: n.Port, Meta: slices.Clone(n.Meta)}
	g.config.SuspicionMult = suspicion(g.lease, g.config.ProbeInterval, len(g.members))
}

func (g *Gossip) forget(n *memberlist.Node) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.members, n.Name)
	g.config.SuspicionMult = suspicion(g.lease, g.config.ProbeInterval, len(g.members))
}

// suspicion is memberlist's SuspicionMult for a lease. memberlist waits the longer the more members it has, by the
// logarithm of their number: what the user says is to hold for any. It counts lost ones for ten minutes more, and waits
// a little longer then.
func suspicion(lease, interval time.Duration, members int) int {
	scale := max(1, math.Log10(max(1, float64(members))))
	return max(1, int(math.Ceil(lease.Seconds()/interval.Seconds()/scale)))
}

// find returns a member by its name.
func (g *Gossip) find(name string) (memberlist.Node, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, ok := g.members[name]
	return n, ok
}

// Changes has a value when Members may have changed since it was last received.
func (g *Gossip) Changes() <-chan struct{} { return g.changes }

func (g *Gossip) changed() {
	select {
	case g.changes <- struct{}{}:
	default:
	}
}

// SetMeta changes what the others know of this member. It returns when the news is on its way, or will be with Open;
// calls must not overlap.
func (g *Gossip) SetMeta(meta []byte) error {
	g.meta.Store(&meta)
	list := g.opened()
	if list == nil {
		return nil // nobody knows of it yet
	}
	if err := list.UpdateNode(time.Second); err != nil {
		return fmt.Errorf("gossip about this member: %w", err)
	}
	return nil
}

// Leave says goodbye, so that the others need not wait for a silence.
func (g *Gossip) Leave() error {
	list := g.opened()
	if list == nil {
		return nil // nobody knows of it
	}
	if err := list.Leave(time.Second); err != nil {
		return fmt.Errorf("leave gossip: %w", err)
	}
	return nil
}

// Port is where this member listens.
func (g *Gossip) Port() int {
	_, port, _ := net.SplitHostPort(g.Addr())
	n, _ := strconv.Atoi(port)
	return n
}

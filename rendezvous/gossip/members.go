package gossip

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
)

// Member is a member that is known by name and has no host id. Several may have the same name: one that was lost a moment
// ago, and the one in its place.
type Member struct {
	Name, Addr string // Addr without a port
	Gossip     string // host:port
	Meta       []byte
}

// Members returns the live members, including this one, in no order.
func (g *Gossip) Members() []Member {
	g.mu.Lock()
	defer g.mu.Unlock()
	var out []Member
	for _, n := range g.members {
		name := n.Name
		if end := strings.LastIndex(name, nameEnd); end >= 0 { // what follows is an address, which has none
			name = name[:end]
		}
		out = append(out, Member{name, n.Addr.String(), n.Address(), n.Meta})
	}
	return out
}

// remember keeps a copy of a member. memberlist calls it under its lock and keeps changing its own; the nodes that its
// Members method returns change while they are read.
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

// suspicion returns memberlist's SuspicionMult for a lease. memberlist scales the wait with the logarithm of the number
// of members, but the user's lease must hold for any number. memberlist counts lost members for ten more minutes, and
// waits a little longer then.
func suspicion(lease, interval time.Duration, members int) int {
	scale := max(1, math.Log10(max(1, float64(members))))
	return max(1, int(math.Ceil(lease.Seconds()/interval.Seconds()/scale)))
}

// find returns a member by name.
func (g *Gossip) find(name string) (memberlist.Node, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	n, ok := g.members[name]
	return n, ok
}

// Changes receives a value when Members may have changed since the last one.
func (g *Gossip) Changes() <-chan struct{} { return g.changes }

func (g *Gossip) changed() {
	select {
	case g.changes <- struct{}{}:
	default:
	}
}

// SetMeta changes what this member publishes. It returns when the update is queued, or will be sent by Open. Calls must
// not overlap.
func (g *Gossip) SetMeta(meta []byte) error {
	g.meta.Store(&meta)
	list := g.opened()
	if list == nil {
		return nil // Open will publish it
	}
	if err := list.UpdateNode(time.Second); err != nil {
		return fmt.Errorf("gossip about this member: %w", err)
	}
	return nil
}

// Leave announces that this member leaves, so that the others need not wait for its lease.
func (g *Gossip) Leave() error {
	list := g.opened()
	if list == nil {
		return nil // no other member knows this one
	}
	if err := list.Leave(time.Second); err != nil {
		return fmt.Errorf("leave gossip: %w", err)
	}
	return nil
}

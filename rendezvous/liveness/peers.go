package liveness

import (
	"maps"
	"slices"
	"time"

	"gorun/rendezvous/wire"
)

// Peers decides, on one host, when to suspect another host of its world. The host reports each change to the launcher
// as wire.Evidence, and the launcher decides what follows.
//
// A host misses a peer in one of three ways. Gossip loses the peer: gossip asks by way of other hosts too, so the peer
// is silent to all. The link loses it: the peer does not answer what was sent, which only the two ends of a broken path
// notice. Or a world that is being formed waits for it, before there is a link.
type Peers struct {
	timing   Timing
	lease    time.Duration
	fixed    bool      // the user chose the lease: no move extends it
	distrust time.Time // this host was paused: until then, that it hears no peer proves nothing
	members  map[int]bool
	peers    map[int]*peer
	gossip   time.Duration // gossip's own lease
}

// peer is what Peers knows of one peer.
type peer struct {
	moves time.Time // until when an announced move counts

	gone   time.Time // when the lease of a peer that gossip lost ends; zero while gossip hears the peer
	silent bool      // that lease has ended, and nothing was heard since

	link    *missing
	forming *missing
	hungUp  bool
	ended   bool // it hung up before this world, which is not formed yet, and no link has heard it since

	sent wire.Evidence
}

// missing is a peer that does not answer over its link, or that a new world waits for.
type missing struct {
	since   time.Time
	counts  time.Time // when its lease began: after since, if a move has ended or this host was paused
	noticed bool      // it has lasted long enough for a line
	warned  bool
	over    bool // its lease has ended
}

// Seen is what a host sees of its peers at one moment.
type Seen struct {
	Unanswered map[int]time.Time        // when each peer that owes an answer over its link last answered
	Heard      func(peer int) time.Time // when the link of a peer last brought something, zero for never
	HungUp     []int                    // the peers that have ended all their connections
	Missing    []int                    // the peers that a world waits for while it is formed
}

// NewPeers returns the peers of a host whose gossip gives up a peer after its own lease. The user chose that lease if
// fixed is true.
func NewPeers(t Timing, gossip time.Duration, fixed bool) *Peers {
	return &Peers{timing: t, lease: gossip, gossip: gossip, fixed: fixed, members: map[int]bool{}, peers: map[int]*peer{}}
}

func (p *Peers) of(id int) *peer {
	x := p.peers[id]
	if x == nil {
		x = &peer{}
		p.peers[id] = x
	}
	return x
}

// World begins another world of members that may be silent for lease. What links and waits showed in the previous world
// no longer counts, but that a peer has hung up: it would not be noticed again, as no link to it comes up. All evidence about members is reported again, as the launcher has dropped evidence about hosts that
// were in no world.
func (p *Peers) World(members []int, lease time.Duration) {
	p.lease = lease
	clear(p.members)
	for _, id := range members {
		p.members[id] = true
	}
	for _, x := range p.peers {
		x.link, x.forming, x.ended = nil, nil, x.hungUp
		if x.silent || x.hungUp || !same(x.sent, wire.Evidence{}) {
			x.sent.Suspicion = stale
		}
	}
}

// Formed notes that the world has begun, for which all its members were heard.
func (p *Peers) Formed() {
	for _, x := range p.peers {
		x.ended = false
	}
}

// stale replaces a suspicion that has to be sent again: it differs from every real one.
const stale wire.Suspicion = -1

// GossipLost notes that gossip has given up a peer.
func (p *Peers) GossipLost(now time.Time, id int) {
	x := p.of(id)
	wait := max(p.lease-p.gossip, 0)
	if now.Before(x.moves) {
		wait = max(wait, p.timing.MoveLease-p.gossip)
	}
	x.gone = later(now.Add(wait), p.distrust)
}

// GossipHeard notes that gossip hears a peer, perhaps after it gave the peer up.
func (p *Peers) GossipHeard(id int) { x := p.of(id); x.gone, x.silent = time.Time{}, false }

// Moves notes that a peer announced a move, and will be paused at some time before until. With a zero until the move
// has ended, and the peer has its lease from now on, however long it was silent before.
func (p *Peers) Moves(now time.Time, id int, until time.Time) {
	x := p.of(id)
	if until.IsZero() || p.fixed {
		if x.link != nil && now.Before(x.moves) {
			x.link.counts = now
		}
		x.moves = time.Time{}
		return
	}
	if !x.gone.IsZero() && x.moves.IsZero() {
		x.gone = x.gone.Add(max(p.timing.MoveLease-max(p.lease, p.gossip), 0))
	}
	x.moves = until
}

// Paused notes that this host itself was paused until now. Peers may have spoken meanwhile, so all get their lease
// again.
func (p *Peers) Paused(now time.Time) {
	p.distrust = now.Add(p.lease)
	for _, x := range p.peers {
		if x.link != nil && !x.link.noticed && !x.link.warned && !x.link.over {
			x.link = nil
		}
		if !x.gone.IsZero() {
			x.gone = later(x.gone, p.distrust)
		}
		if x.forming != nil {
			x.forming.since, x.forming.counts = now, now
		}
	}
}

// State returns the state of a peer.
func (p *Peers) State(now time.Time, id int) State {
	x := p.peers[id]
	switch {
	case x == nil:
		return Alive
	case x.suspicion() >= wire.LeaseOver:
		return Unreachable
	case x.gone.IsZero() && x.link == nil && x.forming == nil:
		return Alive
	case now.Before(x.moves):
		return Paused
	}
	return Suspect
}

// Look takes what the host sees now, and returns the evidence that has changed, in the order of the peers.
func (p *Peers) Look(now time.Time, seen Seen) (news []wire.Evidence) {
	hungUp, awaited := map[int]bool{}, map[int]bool{}
	for _, id := range seen.HungUp {
		p.of(id)
		hungUp[id] = true
	}
	for _, id := range seen.Missing {
		p.of(id)
		awaited[id] = true
	}
	for id := range seen.Unanswered {
		p.of(id)
	}
	for id, x := range p.peers {
		x.ended = x.ended && seen.Heard(id).IsZero()
		x.hungUp = hungUp[id] || x.ended
		lease := p.granted(now, x)
		if !x.gone.IsZero() {
			x.silence(now, seen.Heard(id), lease)
		}
		p.watchLink(now, x, id, seen.Unanswered, lease)
		p.watchForming(now, x, awaited[id])
	}
	for _, id := range slices.Sorted(maps.Keys(p.peers)) {
		x := p.peers[id]
		if e := x.evidence(now, id); p.members[id] && !same(e, x.sent) {
			x.sent = e
			news = append(news, e)
		}
	}
	return news
}

// All returns all evidence against peers of this world, for a launcher that takes over.
func (p *Peers) All(now time.Time) (all []wire.Evidence) {
	for _, id := range slices.Sorted(maps.Keys(p.peers)) {
		e := p.peers[id].evidence(now, id)
		if p.members[id] && !same(e, wire.Evidence{Peer: id}) {
			all = append(all, e)
		}
	}
	return all
}

// granted returns how long a peer may be silent: for the lease, or longer while it moves.
func (p *Peers) granted(now time.Time, x *peer) time.Duration {
	if now.Before(x.moves) {
		return max(p.lease, p.timing.MoveLease)
	}
	return p.lease
}

// silence decides about a peer that gossip has lost. Gossip may miss a peer that is back for a short time only, so what
// its link brought counts as well.
func (x *peer) silence(now, heard time.Time, lease time.Duration) {
	over := x.gone
	if !heard.IsZero() {
		over = later(over, heard.Add(lease))
	}
	if !now.Before(over) {
		x.gone, x.silent = time.Time{}, true
	}
}

// watchLink decides about a peer that may not answer over its link.
func (p *Peers) watchLink(now time.Time, x *peer, id int, unanswered map[int]time.Time, lease time.Duration) {
	answered, waits := unanswered[id]
	if l := x.link; l != nil && (!waits || answered.After(l.since)) {
		x.link = nil
	}
	l := x.link
	switch {
	case !waits:
		return
	case l == nil:
		x.link = &missing{since: now, counts: now}
		return
	case now.Sub(l.since) >= p.timing.NoticeAfter:
		l.noticed = true
	}
	if now.Before(p.distrust) {
		return
	}
	l.warned = l.warned || now.Sub(l.counts) >= p.timing.WarnAfter(lease)
	l.over = l.over || now.Sub(l.counts) >= p.timing.OverLink(lease)
}

// watchForming decides about a peer that a world may wait for while it is formed.
func (p *Peers) watchForming(now time.Time, x *peer, waits bool) {
	if !waits {
		x.forming = nil
		return
	}
	if x.forming == nil {
		x.forming = &missing{since: now, counts: now}
	}
	f := x.forming
	f.noticed = f.noticed || now.Sub(f.since) >= p.timing.FormNoticeAfter
	f.over = f.over || now.Sub(f.counts) >= p.timing.OverLink(p.lease)
}

func (x *peer) suspicion() wire.Suspicion {
	switch {
	case x.silent || x.link != nil && x.link.over:
		return wire.LeaseOver
	case x.forming != nil && x.forming.over:
		return wire.NeverReached
	case x.link != nil && x.link.warned:
		return wire.LeaseEndsSoon
	}
	return wire.NoSuspicion
}

func (x *peer) evidence(now time.Time, id int) wire.Evidence {
	e := wire.Evidence{Peer: id, HungUp: x.hungUp, Suspicion: x.suspicion()}
	if x.link != nil && x.link.noticed {
		e.UnansweredMS = max(1, now.Sub(x.link.since).Milliseconds())
	}
	if x.forming != nil && x.forming.noticed {
		e.AwaitedMS = max(1, now.Sub(x.forming.since).Milliseconds())
	}
	return e
}

// same reports whether two pieces of evidence differ at most in how long something has lasted.
func same(a, b wire.Evidence) bool {
	return a.Suspicion == b.Suspicion && a.HungUp == b.HungUp && a.UnansweredMS > 0 == (b.UnansweredMS > 0) && a.AwaitedMS > 0 == (b.AwaitedMS > 0)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

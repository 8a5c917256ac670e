package liveness

import (
	"maps"
	"slices"
	"time"

	"gorun/rendezvous/wire"
)

// Hosts decides, for the launcher, which hosts are there. Look shows it what the launcher hears, Report what hosts
// report about each other; both return verdicts.
type Hosts struct {
	timing Timing
	gaps   Gaps
	floor  time.Time // before this, nothing could be heard: this machine was paused or isolated
	hosts  map[int]*host
	pairs  map[[2]int]*pair // broken paths, by the ids of both ends, the lesser first
	ballot ballot

	isolated time.Time // when the last of all hosts was heard; zero while one is heard
	noticed  bool      // users have read of the isolation
}

// host is what Hosts knows of one host.
type host struct {
	state   State
	noticed time.Time             // when it was last heard, if users have read of its silence; zero otherwise
	moves   time.Time             // until when an announced move counts; zero if there is none
	back    time.Time             // when the host was heard again after a pause for a move, or reported the end of one
	missing time.Time             // when it was last silent or out of reach
	awaited uint32                // the last epoch for which users read that others wait for it
	reports map[int]wire.Evidence // about its peers
}

// pair is a path between two hosts, at least one of which does not answer the other.
type pair struct {
	by, of  int
	since   time.Time
	noticed bool
	reports map[int]bool // the ends that report it: one direction may recover before the other
}

// NewHosts returns a detector for no hosts yet.
func NewHosts(t Timing) *Hosts {
	return &Hosts{timing: t, gaps: Gaps{Limit: t.Late()}, hosts: map[int]*host{}, pairs: map[[2]int]*pair{},
		ballot: ballot{grace: t.EvidenceGrace}}
}

// View is what the launcher sees at one moment.
type View struct {
	Contacts []Contact
	Lease    time.Duration // of hosts
	Fixed    bool          // the user chose it: no move extends it
	Stopping bool          // the job ends
	Epoch    uint32        // of the last world
	Met      func(a, b int) bool
	Joiner   func(id int) bool // has not been in a world yet
}

// Contact is what the launcher sees of one host.
type Contact struct {
	ID      int
	Heard   time.Time // when the host last spoke, or now while the launcher does not listen; zero if it has not spoken yet
	Line    Line
	Up      bool // its daemon has answered
	Ready   bool // it can be in a world
	Adopted bool // another launcher has started it
	Member  bool // of the present world
	Leaving bool // it is to end
	Ended   bool // it has
}

// Line is the state of a connection that is renewed when it breaks.
type Line struct {
	Kept       bool      // there is one; otherwise the host ends with its connection
	Broken     time.Time // when the connection ended; zero if it stands
	Unanswered time.Time // since when the host has not answered, though a login takes time; zero while it does
	HungUp     bool      // the host has ended the connection
	Blind      bool      // only a finished login shows that the host answers
}

// Verdict is something that users should read, or that the launcher should do.
type Verdict struct {
	Kind  Kind
	Host  int
	Peer  int           // of BrokenPath and MendedPath: the other end
	Since time.Time     // when the host was last heard, or the path broke
	For   time.Duration // until now
	Moves bool          // of Silent: the host moves
	Count int           // of Isolated: hosts
	Until time.Time     // of Isolated: when the hosts end the job
	Evict Evict         // of Evicted
}

// Kind is what a verdict is about.
type Kind int

// Kinds of verdicts.
const (
	Silent     Kind = iota // a host, for NoticeAfter
	Back                   // a silent host is heard again
	BrokenPath             // a host does not answer a peer, although the launcher hears both
	MendedPath             // the host answers the peer again
	Isolated               // the launcher hears none of several hosts
	Abandoned              // it has been isolated for so long that the hosts have ended the job
	OutOfReach             // the connection with a host has ended; in a world, its peers would report whether it lives
	Evicted                // the job goes on without the host, or ends
)

// Evict is why a host is evicted.
type Evict struct {
	Cause Cause
	By    int           // of Reported, Unreached and BrokenLink: the host that reports it
	Text  string        // of BrokenLink: why
	From  []int         // of CutOff: the hosts that it does not hear
	Since time.Time     // of NoContact
	Lease time.Duration // that is over
	Heard bool          // by the launcher, until now
	// MayLive is true for a host that cannot be reached and may still run.
	MayLive bool
}

// Cause is why a host is lost.
type Cause int

// Causes of an eviction.
const (
	Reported   Cause = iota + 1 // a peer reports its silence
	Unreached                   // a peer has not reached it since a world was begun
	CutOff                      // it reports the silence of others, and is the one that is lost
	NotHeard                    // the launcher has not heard it for its lease
	NoContact                   // the launcher cannot reach it
	BrokenLink                  // a peer reports that their link failed and cannot resume
)

func (s *Hosts) of(id int) *host {
	h := s.hosts[id]
	if h == nil {
		h = &host{reports: map[int]wire.Evidence{}}
		s.hosts[id] = h
	}
	return h
}

// Begin notes that this launcher takes over from another one now, and could hear nothing before.
func (s *Hosts) Begin(now time.Time) { s.floor = now }

// Forget drops what is known of a host. Another host gets its id.
func (s *Hosts) Forget(id int) { delete(s.hosts, id) }

// Moving returns until when an announced move of the host counts, zero if there is none.
func (s *Hosts) Moving(id int) time.Time { return s.of(id).moves }

// Moves notes that a host announced a move, which counts until then.
func (s *Hosts) Moves(id int, until time.Time) { s.of(id).moves = until }

// Moved notes that a host reports the end of its move.
func (s *Hosts) Moved(now time.Time, id int) {
	if h := s.of(id); h.moves.After(now) {
		h.moves, h.back = time.Time{}, now
	}
}

// Lease returns how long a host may be silent. A host that announced a move has longer until the announcement expires.
func (s *Hosts) Lease(now time.Time, id int, v View) time.Duration {
	if !v.Fixed && s.of(id).moves.After(now) {
		return max(v.Lease, s.timing.MoveLease)
	}
	return v.Lease
}

// Quiet returns how long a host last heard at last has been silent, without the time in which this machine could not
// hear.
func (s *Hosts) Quiet(now, last time.Time) time.Duration { return now.Sub(later(last, s.floor)) }

// Hears reports whether the launcher hears a host.
func (s *Hosts) Hears(now time.Time, c Contact) bool {
	return s.Quiet(now, c.Heard) < s.timing.UnheardAfter
}

// IsolatedSince returns when an isolated launcher last heard a host, zero if it is not isolated.
func (s *Hosts) IsolatedSince() time.Time { return s.isolated }

// hungUp reports whether a host has ended all connections with a peer that has not ended itself.
func (s *Hosts) hungUp(id int, v View) bool {
	return slices.ContainsFunc(v.Contacts, func(c Contact) bool { return !c.Ended && s.of(c.ID).reports[id].HungUp })
}

// mayLive reports whether a host that cannot be reached may still run: its kernel has ended no connection.
func (s *Hosts) mayLive(c Contact) bool {
	for _, h := range s.hosts {
		if h.reports[c.ID].HungUp {
			return false
		}
	}
	return !c.Line.HungUp
}

// State returns the state of a host, as it was at the last Look or Decide.
func (s *Hosts) State(id int) State { return s.of(id).state }

// observe sets the states of all hosts. Only evict makes one Dead.
func (s *Hosts) observe(now time.Time, v View) {
	for _, c := range v.Contacts {
		h := s.of(c.ID)
		former, silent := h.state, !s.Hears(now, c)
		switch {
		case h.state == Dead:
		case silent && h.moves.After(now) && !v.Fixed && s.Quiet(now, c.Heard) < s.Lease(now, c.ID, v):
			h.state = Paused
		case !c.Line.Broken.IsZero():
			h.state = Unreachable
		case silent && !c.Heard.IsZero(): // one that has yet to speak is starting
			h.state = Suspect
		default:
			h.state = Alive
		}
		if former == Paused && h.state != Dead && !silent {
			h.back = now
		}
	}
}

// Report takes all the evidence of a host against a peer.
func (s *Hosts) Report(now time.Time, by int, e wire.Evidence) []Verdict {
	if e.Peer == by {
		return nil
	}
	s.of(by).reports[e.Peer] = e
	if e.Suspicion == wire.NoSuspicion {
		s.ballot.withdraw(by, e.Peer)
	}
	return s.reportPath(now, by, e)
}

// LinkFailed takes a host's report that its link to a peer failed and cannot resume: the peer sent what breaks the
// protocol, or its daemon has lost the link. The two cannot continue in one world, so the peer is evicted at once.
func (s *Hosts) LinkFailed(now time.Time, by, peer int, why string, v View) []Verdict {
	c, known := contact(peer, v)
	if !known || c.Ended || s.State(peer) == Dead {
		return nil
	}
	return []Verdict{s.evict(peer, Evict{Cause: BrokenLink, By: by, Text: why, Heard: s.Hears(now, c)})}
}

// Awaited takes the evidence of a host that waits for a peer while a world is formed. It returns which of the two is
// late, the peer unless the host alone is a joiner, and the other one. Each host is news once an epoch.
func (s *Hosts) Awaited(by int, e wire.Evidence, v View) (late, other int, news bool) {
	if e.AwaitedMS == 0 || e.Epoch != v.Epoch || v.Stopping {
		return 0, 0, false
	}
	late, other = e.Peer, by
	if v.Joiner(by) && !v.Joiner(e.Peer) {
		late, other = other, late
	}
	if c, ok := contact(late, v); !ok || !s.member(c, v) || s.of(late).awaited == e.Epoch {
		return 0, 0, false
	}
	s.of(late).awaited = e.Epoch
	return late, other, true
}

// Look takes what the launcher sees now, several times a second, and returns what follows.
func (s *Hosts) Look(now time.Time, v View) (out []Verdict) {
	if _, paused := s.gaps.Look(now); paused {
		s.floor = now
	}
	s.observe(now, v)
	out = append(out, s.lookIsolated(now, v)...)
	if len(out) > 0 && out[len(out)-1].Kind == Abandoned {
		return out
	}
	out = append(out, s.Decide(now, v)...)
	out = append(out, s.lookContacts(now, v)...)
	for _, c := range v.Contacts {
		s.missing(now, c, 0) // records when it was last missing
	}
	if v.Stopping {
		return out
	}
	for _, c := range v.Contacts {
		out = append(out, s.lookSilence(now, c)...)
	}
	return append(out, s.lookPairs(now, v)...)
}

// lookSilence returns a verdict when users should read of a host's silence, or of its end.
func (s *Hosts) lookSilence(now time.Time, c Contact) []Verdict {
	h := s.of(c.ID)
	if !c.Ready || c.Ended || c.Leaving || h.state == Dead || c.Heard.IsZero() {
		return nil
	}
	moves := h.moves.After(now)
	switch {
	case h.state == Alive && !h.noticed.IsZero() && c.Heard.After(h.noticed):
		since := h.noticed
		h.noticed = time.Time{}
		return []Verdict{{Kind: Back, Host: c.ID, Since: since, For: c.Heard.Sub(since), Moves: moves}}
	case h.state != Alive && h.noticed.IsZero() && s.Quiet(now, c.Heard) >= s.timing.NoticeAfter:
		h.noticed = c.Heard
		return []Verdict{{Kind: Silent, Host: c.ID, Since: c.Heard, For: now.Sub(c.Heard), Moves: moves}}
	}
	return nil
}

// lookIsolated notices that none of several hosts is heard. Most likely this machine is cut off; with a single host,
// that host is as likely to be. While the launcher is isolated it evicts no host, and afterwards all of them get their
// lease again.
func (s *Hosts) lookIsolated(now time.Time, v View) []Verdict {
	var last time.Time
	hosts := 0
	for _, c := range v.Contacts {
		heard := later(c.Heard, s.floor)
		if c.Up && !c.Ended && !c.Leaving && s.State(c.ID) != Dead && !heard.IsZero() {
			hosts++
			last = later(last, heard)
		}
	}
	if hosts < 2 || now.Sub(last) < s.timing.UnheardAfter {
		if s.noticed && hosts > 0 {
			s.floor = now
		}
		s.isolated, s.noticed = time.Time{}, false
		return nil
	}
	s.isolated = last
	verdict := Verdict{Kind: Isolated, Count: hosts, Since: last, For: now.Sub(last), Until: last.Add(s.timing.Launcher(v.Lease))}
	switch {
	case v.Stopping:
	case verdict.For >= s.timing.Abandon(v.Lease):
		verdict.Kind = Abandoned
		return []Verdict{verdict}
	case verdict.For >= s.timing.NoticeAfter && !s.noticed:
		s.noticed = true
		return []Verdict{verdict}
	}
	return nil
}

// lookContacts evicts hosts that cannot be reached, when their lease ends or there is a sign that they have died, and
// hosts whose silence outlasts their lease where no peer would report it. That a host ended its connection with the
// launcher is such a sign only if no peer is heard that reaches it: an sshd may end alone, with all its sessions, and
// come back.
func (s *Hosts) lookContacts(now time.Time, v View) (out []Verdict) {
	for _, c := range v.Contacts {
		quiet, ok := s.silence(now, c)
		if !ok || s.State(c.ID) == Dead {
			continue
		}
		lease := s.Lease(now, c.ID, v)
		expired := quiet >= lease && s.isolated.IsZero()
		if c.Line.Broken.IsZero() {
			if expired && c.Ready && !s.watched(now, c, v) {
				out = append(out, s.evict(c.ID, Evict{Cause: NotHeard, Lease: lease, MayLive: true}))
			}
			continue
		}
		out = append(out, Verdict{Kind: OutOfReach, Host: c.ID})
		if s.Quiet(now, c.Line.Broken) < s.timing.HangUpGrace {
			continue
		}
		grace := s.timing.HangUpGrace
		if c.Line.Blind {
			grace = s.timing.LoginGrace
		}
		idle := !c.Ready || c.Leaving || v.Stopping // it has no ranks to lose
		dead := !c.Line.Unanswered.IsZero() && s.Quiet(now, c.Line.Unanswered) >= grace
		gone := s.hungUp(c.ID, v) || c.Line.HungUp && (!s.watched(now, c, v) || s.missed(now, c.ID, v))
		if dead && (idle || gone) || expired {
			out = append(out, s.evict(c.ID, Evict{Cause: NoContact, Since: c.Line.Broken, Lease: lease, MayLive: s.mayLive(c)}))
		}
	}
	return out
}

func (s *Hosts) evict(id int, e Evict) Verdict {
	s.of(id).state = Dead
	return Verdict{Kind: Evicted, Host: id, Evict: e}
}

// missed reports whether a peer that is heard holds anything against a host.
func (s *Hosts) missed(now time.Time, id int, v View) bool {
	return slices.ContainsFunc(v.Contacts, func(other Contact) bool {
		e := s.of(other.ID).reports[id]
		return s.member(other, v) && s.Hears(now, other) && (e.Suspicion != wire.NoSuspicion || e.UnansweredMS > 0 || e.AwaitedMS > 0)
	})
}

// watched reports whether the launcher hears a peer that has met the host, and so would report its silence.
func (s *Hosts) watched(now time.Time, c Contact, v View) bool {
	return s.member(c, v) && slices.ContainsFunc(v.Contacts, func(other Contact) bool {
		return other.ID != c.ID && s.member(other, v) && v.Met(c.ID, other.ID) && s.Hears(now, other)
	})
}

// member reports whether evidence by and about a host counts. It does for a host that this launcher has yet to take
// over from another one, too: if that host is lost, its peers know, and it need not get a second lease.
func (s *Hosts) member(c Contact, v View) bool {
	return !v.Stopping && !c.Ended && !c.Leaving && c.Member && (c.Ready || c.Adopted) && s.State(c.ID) != Dead
}

func contact(id int, v View) (Contact, bool) {
	if id >= 0 && id < len(v.Contacts) && v.Contacts[id].ID == id {
		return v.Contacts[id], true
	}
	i := slices.IndexFunc(v.Contacts, func(c Contact) bool { return c.ID == id })
	if i < 0 {
		return Contact{}, false
	}
	return v.Contacts[i], true
}

// Decide evicts the hosts that are lost by the evidence of their peers. It evicts none while the launcher is isolated,
// as peers can neither add evidence nor withdraw it.
func (s *Hosts) Decide(now time.Time, v View) (out []Verdict) {
	if v.Stopping || !s.isolated.IsZero() {
		return nil
	}
	s.observe(now, v)
	var members []int
	heard := map[int]bool{}
	for _, c := range v.Contacts {
		if s.member(c, v) {
			members = append(members, c.ID)
			heard[c.ID] = s.Hears(now, c)
		}
	}
	for _, c := range v.Contacts {
		s.vote(now, c.ID, v)
	}
	for _, id := range s.ballot.lost(now, members, func(id int) bool { return heard[id] }, v.Joiner) {
		e := s.reason(id, v)
		e.Heard = heard[id]
		out = append(out, s.evict(id, e))
	}
	return out
}

// vote puts into the ballot what a host reports about members that have no excuse.
func (s *Hosts) vote(now time.Time, by int, v View) {
	h := s.of(by)
	for peer, e := range h.reports {
		c, known := contact(peer, v)
		switch {
		case e.Suspicion == wire.NoSuspicion:
		case !known || !s.member(c, v): // the host reports it again when the peer is in a world again
			e.Suspicion = wire.NoSuspicion
			h.reports[peer] = e
		case s.excused(now, c, v):
			s.ballot.withdraw(by, peer)
		case e.Suspicion == wire.LeaseEndsSoon:
			s.ballot.warn(now, by, peer)
		default:
			s.ballot.suspect(now, by, peer)
		}
	}
}

// excused reports whether peers may suspect a host only because they have not heard that it moves: while it is paused
// for no longer than a move may take, and then until they have found it again. An announced move does not excuse a host
// that is heard here: then the path to the others is broken, and either end of it may be at fault.
func (s *Hosts) excused(now time.Time, c Contact, v View) bool {
	h := s.of(c.ID)
	return h.state == Paused || s.Hears(now, c) && !v.Fixed && now.Sub(h.back) < s.timing.ReunionGrace
}

// reason returns why a host is lost: a peer's evidence against it, or else the peers that it does not hear.
func (s *Hosts) reason(id int, v View) Evict {
	for _, c := range v.Contacts {
		h := s.of(c.ID)
		switch e := h.reports[id]; {
		case h.state == Dead:
		case e.Suspicion == wire.LeaseOver:
			return Evict{Cause: Reported, By: c.ID, Lease: v.Lease}
		case e.Suspicion == wire.NeverReached:
			return Evict{Cause: Unreached, By: c.ID, Lease: s.timing.OverLink(v.Lease)}
		}
	}
	e := Evict{Cause: CutOff, Lease: v.Lease}
	h := s.of(id)
	for _, peer := range slices.Sorted(maps.Keys(h.reports)) {
		if h.reports[peer].Suspicion != wire.NoSuspicion {
			e.From = append(e.From, peer)
		}
	}
	return e
}

// reportPath takes what a host reports about the path to a peer. Both ends may report it as broken; it has mended when
// both have withdrawn that.
func (s *Hosts) reportPath(now time.Time, by int, e wire.Evidence) []Verdict {
	ends := [2]int{min(by, e.Peer), max(by, e.Peer)}
	known := s.pairs[ends]
	switch {
	case e.UnansweredMS > 0 && known != nil:
		known.reports[by] = true
	case e.UnansweredMS > 0:
		s.pairs[ends] = &pair{by: by, of: e.Peer, since: now.Add(-time.Duration(e.UnansweredMS) * time.Millisecond), reports: map[int]bool{by: true}}
	case known != nil:
		if delete(known.reports, by); len(known.reports) > 0 {
			return nil
		}
		delete(s.pairs, ends)
		if known.noticed {
			return []Verdict{{Kind: MendedPath, Host: known.of, Peer: known.by, Since: known.since, For: now.Sub(known.since)}}
		}
	}
	return nil
}

// lookPairs returns the broken paths that users should read of. A path to a host that the launcher does not hear either
// is not among them: lookSilence reports that host.
func (s *Hosts) lookPairs(now time.Time, v View) (out []Verdict) {
	inOrder := func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }
	for _, ends := range slices.SortedFunc(maps.Keys(s.pairs), inOrder) {
		p := s.pairs[ends]
		by, known := contact(p.by, v)
		of, knownToo := contact(p.of, v)
		switch {
		case !known || !knownToo || !s.member(by, v) || !s.member(of, v):
			delete(s.pairs, ends)
		case !p.noticed && s.settled(now, by) && s.settled(now, of):
			p.noticed = true
			out = append(out, Verdict{Kind: BrokenPath, Host: p.of, Peer: p.by, Since: p.since, For: now.Sub(p.since)})
		}
	}
	return out
}

// settled reports whether the launcher has heard a host for a while. After a silence, of the launcher too, a host takes
// a moment to hear the others again; and the launcher does not notice at once when a host falls silent.
func (s *Hosts) settled(now time.Time, c Contact) bool {
	missing := s.missing(now, c, s.timing.ReunionGrace)
	return s.Hears(now, c) && !missing && now.Sub(s.floor) >= s.timing.ReunionGrace
}

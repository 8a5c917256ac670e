package liveness_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
)

// network is a job of hosts and their launcher, in steps of a quarter of a second. Hosts are numbered from 0; the launcher is one past the
// last. All of it is decided by the seed.
type network struct {
	t      *testing.T
	rng    *rand.Rand
	timing liveness.Timing
	n      int
	now    time.Time
	dead   []bool
	paused []bool
	cut    map[[2]int]bool // paths that carry nothing, by both ends, the lesser first

	hosts   []*simHost
	watch   *liveness.Hosts
	heard   []time.Time
	broken  []time.Time  // since when the launcher's connection has ended
	hungUp  []bool       // their connections with the launcher, and with their peers if they are dead, end in order
	blind   bool         // only a finished login shows that a host answers
	cuts    map[int]bool // hosts whose connection with the launcher has ended and is not renewed
	strange map[int]bool // hosts that no other host has met
	evicted map[int]time.Time
	over    time.Time // when the launcher ended the job
	lease   time.Duration
	fixed   bool // the user chose the lease

	joiner  map[int]bool
	missing map[int]bool // hosts that a world which is being formed waits for, where they are not reached
	log     []entry      // what happened
	due     []due
}

// due is something that is to happen.
type due struct {
	at   time.Time
	what func()
}

// entry is something that users read, or that the job lost.
type entry struct {
	at   time.Time
	what string
}

func (w *network) note(format string, args ...any) {
	w.log = append(w.log, entry{w.now, fmt.Sprintf(format, args...)})
}

// moves has a host announce a move.
func (w *network) moves(id int) {
	until := w.now.Add(w.timing.MoveLimit)
	w.watch.Moves(id, until)
	for other, h := range w.hosts {
		if other != id {
			h.peers.Moves(w.now, id, until)
		}
	}
}

// simHost is a host.
type simHost struct {
	peers    *liveness.Peers
	lease    liveness.LauncherLease
	answered []time.Time // when each peer last answered over its link
	gossip   []time.Time // when gossip last heard of each peer
	lost     []bool      // given up by gossip
	delay    []time.Duration
	spoken   time.Time // when the launcher last spoke to it
	deaf     time.Time // since when it does without the launcher; zero if it hears it
	expires  time.Time // when it next asks whether to wait longer
	ended    time.Time // when it gave its launcher up
	stopped  bool      // by its launcher, which evicted it
	woke     time.Time // when it last ran
	outbox   []letter
}

// letter is evidence on its way: it waits for a connection, and comes in order.
type letter struct {
	due time.Time
	e   wire.Evidence
}

func newNetwork(t *testing.T, seed uint64, n int) *network {
	w := &network{t: t, rng: rand.New(rand.NewPCG(seed, 7)), timing: liveness.Default(), n: n, now: start, cut: map[[2]int]bool{}, cuts: map[int]bool{}, strange: map[int]bool{}, evicted: map[int]time.Time{}, joiner: map[int]bool{}, missing: map[int]bool{},
		dead: make([]bool, n), paused: make([]bool, n+1), heard: make([]time.Time, n), broken: make([]time.Time, n), hungUp: make([]bool, n)}
	w.watch, w.lease = liveness.NewHosts(w.timing), w.timing.Lease
	var all []int
	for id := range n {
		all = append(all, id)
	}
	for id := range n {
		h := &simHost{peers: liveness.NewPeers(w.timing, w.timing.Lease, false), answered: make([]time.Time, n), gossip: make([]time.Time, n), lost: make([]bool, n),
			delay: make([]time.Duration, n), spoken: start, woke: start}
		for peer := range n {
			h.answered[peer], h.gossip[peer] = start, start
			h.lease.Heard(peer)
			h.delay[peer] = time.Duration(w.rng.IntN(12)) * 250 * time.Millisecond // gossip finds out about its members one after the other
		}
		h.peers.World(all, w.timing.Lease)
		h.lease.World(1, slices.DeleteFunc(slices.Clone(all), func(other int) bool { return other == id }), w.timing.Lease)
		w.hosts, w.heard[id] = append(w.hosts, h), start
	}
	return w
}

func (w *network) runs(id int) bool {
	return !w.paused[id] && (id == w.n || !w.dead[id] && w.hosts[id].ended.IsZero() && !w.hosts[id].stopped)
}

// reaches reports whether what one end sends comes to the other now.
func (w *network) reaches(a, b int) bool {
	return w.runs(a) && w.runs(b) && !w.cut[[2]int{min(a, b), max(a, b)}]
}

// part cuts, or mends, all paths between two groups.
func (w *network) part(some, others []int, cut bool) {
	for _, a := range some {
		for _, b := range others {
			if a != b {
				w.cut[[2]int{min(a, b), max(a, b)}] = cut
			}
		}
	}
}

// routed reports whether gossip comes from one host to another, over others if need be.
func (w *network) routed(a, b int) bool {
	seen, next := map[int]bool{a: true}, []int{a}
	for len(next) > 0 {
		at := next[0]
		next = next[1:]
		for id := range w.n {
			if !seen[id] && w.reaches(at, id) {
				seen[id] = true
				next = append(next, id)
			}
		}
	}
	return seen[b]
}

// later has something happen some seconds from now.
func (w *network) later(seconds float64, what func()) {
	w.due = append(w.due, due{w.now.Add(time.Duration(seconds * float64(time.Second))), what})
}

// step lets a quarter of a second pass.
func (w *network) step() {
	w.now = w.now.Add(w.timing.LookInterval)
	for i, d := range w.due {
		if d.what != nil && !w.now.Before(d.at) {
			w.due[i].what = nil
			d.what()
		}
	}
	for id, h := range w.hosts {
		h.stopped = h.stopped || !w.evicted[id].IsZero() && w.connected(id)
		if w.runs(id) {
			w.stepHost(id, h)
		}
	}
	if w.runs(w.n) && w.over.IsZero() {
		w.stepLauncher()
	}
}

func (w *network) stepHost(id int, h *simHost) {
	if w.now.Sub(h.woke) > 3*time.Second {
		h.peers.Paused(w.now)
	}
	h.woke = w.now
	if w.connected(id) && w.over.IsZero() {
		h.spoken = w.now
	}
	seen := liveness.Seen{Unanswered: map[int]time.Time{}, Heard: func(peer int) time.Time { return h.answered[peer] }}
	for peer := range w.n {
		if peer == id {
			continue
		}
		if w.reaches(id, peer) {
			h.answered[peer] = w.now
		} else {
			seen.Unanswered[peer] = h.answered[peer]
		}
		if w.missing[peer] && !w.reaches(id, peer) || w.missing[id] && !w.reaches(id, peer) {
			seen.Missing = append(seen.Missing, peer)
			delete(seen.Unanswered, peer) // there is no link yet
		}
		if w.dead[peer] && w.hungUp[peer] {
			seen.HungUp = append(seen.HungUp, peer)
		}
		if w.routed(id, peer) {
			if h.gossip[peer] = w.now; h.lost[peer] {
				h.lost[peer] = false
				h.peers.GossipHeard(peer)
				h.lease.Heard(peer)
			}
			h.lease.Peer(peer, uint64(w.now.UnixNano()), w.hosts[peer].deaf.IsZero())
		} else if !h.lost[peer] && !w.missing[id] && !w.missing[peer] && w.now.Sub(h.gossip[peer]) >= w.gossipLease()+h.delay[peer] {
			h.lost[peer] = true
			h.peers.GossipLost(w.now, peer)
			h.lease.Silent(peer)
		}
	}
	if w.now.UnixMilli()%1000 < 250 {
		for _, e := range h.peers.Look(w.now, seen) {
			e.Epoch = 1
			h.outbox = append(h.outbox, letter{w.now.Add(time.Duration(w.rng.IntN(4)) * 250 * time.Millisecond), e})
		}
	}
	w.stepLease(id, h)
}

// stepLease does what resume.Serve does on a host with a connection that is silent or has ended: it waits relayWait at a
// time, in which its peers report whether they hear the launcher, and asks the lease.
func (w *network) stepLease(id int, h *simHost) {
	relayWait := liveness.Default().BrokenGrace
	limit := h.lease.Limit()
	switch {
	case !w.cuts[id] && (limit == 0 || w.now.Sub(h.spoken) < limit):
		h.deaf = time.Time{}
	case h.deaf.IsZero():
		h.deaf, h.expires = w.now, w.now.Add(relayWait)
	case w.now.Before(h.expires):
	case h.lease.Extend(w.now.Sub(h.deaf)):
		h.expires = w.now.Add(relayWait)
	default:
		h.ended = w.now
		w.note("host %d ends", id)
	}
}

// connected reports whether what the launcher and a host send comes to the other now.
func (w *network) connected(id int) bool { return w.reaches(w.n, id) && !w.cuts[id] }

// gossipLease is how long gossip waits for a silent host: a host does not know at first that another one has virtual GPUs.
func (w *network) gossipLease() time.Duration {
	if w.fixed {
		return w.lease
	}
	return w.timing.Lease
}

// leases gives all hosts another lease, which the user chose if fixed is true.
func (w *network) leases(lease time.Duration, fixed bool) {
	w.lease, w.fixed = lease, fixed
	for id, h := range w.hosts {
		var all, others []int
		for other := range w.n {
			if all = append(all, other); other != id {
				others = append(others, other)
			}
		}
		h.peers = liveness.NewPeers(w.timing, w.gossipLease(), fixed)
		h.peers.World(all, lease)
		h.lease.World(1, others, lease)
	}
}

func (w *network) stepLauncher() {
	met := func(a, b int) bool { return !w.strange[a] && !w.strange[b] }
	v := liveness.View{Lease: w.lease, Fixed: w.fixed, Epoch: 1, Met: met, Joiner: func(id int) bool { return w.joiner[id] }}
	for id := range w.n {
		if w.connected(id) {
			w.heard[id], w.broken[id] = w.now, time.Time{}
		}
		line := liveness.Line{Kept: true}
		if hungUp := w.hungUp[id]; hungUp || w.cuts[id] {
			if w.broken[id].IsZero() {
				w.broken[id] = w.now
			}
			line.Broken, line.Unanswered, line.HungUp, line.Blind = w.broken[id], w.broken[id], hungUp, w.blind
		}
		v.Contacts = append(v.Contacts, liveness.Contact{ID: id, Heard: w.heard[id], Line: line, Up: true, Ready: true, Member: true, Ended: !w.evicted[id].IsZero()})
	}
	for id, h := range w.hosts {
		for len(h.outbox) > 0 && w.connected(id) && !h.outbox[0].due.After(w.now) {
			e := h.outbox[0].e
			h.outbox = h.outbox[1:]
			if late, _, news := w.watch.Awaited(id, e, v); news {
				w.note("awaited %d", late)
			}
			w.act(append(w.watch.Report(w.now, id, e), w.watch.Decide(w.now, v)...))
		}
	}
	w.act(w.watch.Look(w.now, v))
}

func (w *network) act(verdicts []liveness.Verdict) {
	for _, v := range verdicts {
		switch v.Kind {
		case liveness.Evicted:
			if at, twice := w.evicted[v.Host]; twice {
				w.t.Errorf("host %d is evicted again, after %v", v.Host, at.Sub(start))
			}
			w.evicted[v.Host] = w.now
			w.note("%s", words([]liveness.Verdict{v}))
		case liveness.Abandoned:
			w.over = w.now
			w.note("abandoned")
		case liveness.Isolated:
			w.note("isolated")
		case liveness.BrokenPath:
			w.note("broken path")
		case liveness.Silent:
			w.note("silent %d", v.Host)
		case liveness.Back:
			w.note("back %d", v.Host)
		}
	}
}

func (w *network) run(d time.Duration) {
	for until := w.now.Add(d); w.now.Before(until); {
		w.step()
	}
}

func (w *network) after() (s string) {
	for id := range w.n {
		if at, ok := w.evicted[id]; ok {
			s += fmt.Sprintf(" %d@%v", id, at.Sub(start))
		}
	}
	return s
}

// each runs a scenario with many seeds and sizes.
func each(t *testing.T, least int, scenario func(t *testing.T, w *network)) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 10
	}
	for seed := range seeds {
		n := least + int(seed)%5
		t.Run(fmt.Sprintf("%d hosts, seed %d", n, seed), func(t *testing.T) { scenario(t, newNetwork(t, seed, n)) })
	}
}

// bound is how long a host that does nothing any more may stay: its lease, what gossip takes to find out, the grace of the others, and
// the moments until evidence is sent and comes.
func (w *network) bound() time.Duration {
	return w.timing.Lease + 3*time.Second + w.timing.EvidenceGrace + 3*time.Second
}

// TestDeadHosts: hosts that lose power are evicted within the bound, hosts whose kernel hangs up within seconds, and no others.
func TestDeadHosts(t *testing.T) {
	each(t, 2, func(t *testing.T, w *network) {
		w.run(5 * time.Second)
		left := w.n
		for left > max(1, w.n/2) {
			left--
			id := w.rng.IntN(w.n)
			w.dead[id] = true
			w.hungUp[id] = w.rng.IntN(2) == 0
			died := w.now
			limit := w.bound()
			if w.hungUp[id] {
				limit = w.timing.HangUpGrace + time.Second
			}
			if _, before := w.evicted[id]; before {
				continue
			}
			w.run(limit)
			if at, ok := w.evicted[id]; !ok {
				t.Fatalf("host %d, dead since %v, is still there after %v; evicted are%s", id, died.Sub(start), limit, w.after())
			} else if !w.hungUp[id] && at.Sub(died) < w.timing.Lease-2*time.Second && left > 1 {
				t.Fatalf("host %d, silent since %v, was evicted at %v", id, died.Sub(start), at.Sub(start))
			}
		}
		w.run(20 * time.Second)
		for id := range w.n {
			if _, ok := w.evicted[id]; ok != w.dead[id] {
				t.Errorf("host %d is dead: %v, evicted: %v", id, w.dead[id], ok)
			}
		}
	})
}

// TestPauses: hosts that are paused, or cut off, for less than their lease are not evicted, however many and however often, as long as they
// are heard in between.
func TestPauses(t *testing.T) {
	each(t, 2, func(t *testing.T, w *network) {
		for range 4 {
			var some, others []int
			for id := range w.n {
				if w.rng.IntN(3) == 0 {
					some = append(some, id)
				} else {
					others = append(others, id)
				}
			}
			pauses := w.rng.IntN(2) == 0
			for _, id := range some {
				w.paused[id] = pauses
			}
			if !pauses {
				w.part(some, others, true)
				w.part(some, []int{w.n}, w.rng.IntN(2) == 0)
			}
			w.run(time.Duration(1+w.rng.IntN(20)) * time.Second)
			for id := range w.n + 1 {
				w.paused[id] = false
			}
			clear(w.cut)
			w.run(time.Duration(12+w.rng.IntN(10)) * time.Second)
		}
		if len(w.evicted) > 0 || !w.over.IsZero() {
			t.Errorf("evicted are%s, the job ended at %v", w.after(), w.over)
		}
	})
}

// TestIsolatedLauncher: a launcher that hears no host evicts none, and ends the job after its hosts have; if it is heard again before,
// nothing is lost. So it is if it is paused.
func TestIsolatedLauncher(t *testing.T) {
	each(t, 2, func(t *testing.T, w *network) {
		w.run(5 * time.Second)
		all := w.rng.Perm(w.n)
		for _, seconds := range []int{10, 25, 30} {
			if pauses := w.rng.IntN(2) == 0; pauses {
				w.paused[w.n] = true
			} else {
				w.part(all, []int{w.n}, true)
			}
			w.run(time.Duration(seconds) * time.Second)
			w.paused[w.n] = false
			clear(w.cut)
			w.run(15 * time.Second)
		}
		if len(w.evicted) > 0 || !w.over.IsZero() || slices.ContainsFunc(w.hosts, func(h *simHost) bool { return !h.ended.IsZero() }) {
			t.Fatalf("the launcher was isolated for a while: evicted are%s", w.after())
		}
		cut := w.now
		w.part(all, []int{w.n}, true)
		w.run(w.timing.Abandon(w.timing.Lease) + 2*w.timing.LauncherInterval)
		if len(w.evicted) > 0 || w.over.IsZero() {
			t.Fatalf("the launcher is isolated since %v: it ended the job %v; evicted are%s", cut.Sub(start), w.over, w.after())
		}
		for id, h := range w.hosts {
			if h.ended.IsZero() || h.ended.Sub(cut) < w.timing.Launcher(w.timing.Lease)-time.Second {
				t.Errorf("host %d ended the job %v after it last heard the launcher", id, h.ended.Sub(cut))
			}
			if h.ended.After(w.over.Add(time.Second)) {
				t.Errorf("host %d ended the job after the launcher", id)
			}
		}
	})
}

// TestHostWithoutLauncher: a host that is cut off from the launcher alone is heard by its peers, so its launcher lives: it waits for it, and
// goes on if it is heard again.
func TestHostWithoutLauncher(t *testing.T) {
	each(t, 3, func(t *testing.T, w *network) {
		w.run(5 * time.Second)
		id := w.rng.IntN(w.n)
		w.part([]int{id}, []int{w.n}, true)
		w.run(w.timing.Launcher(w.timing.Lease) + 20*time.Second)
		if h := w.hosts[id]; !h.ended.IsZero() || len(w.evicted) > 0 {
			t.Fatalf("host %d ended the job at %v, evicted are%s", id, h.ended.Sub(start), w.after())
		}
		clear(w.cut)
		w.run(time.Minute)
		if h := w.hosts[id]; !h.ended.IsZero() || len(w.evicted) > 0 {
			t.Fatalf("host %d is back and ended the job at %v, evicted are%s", id, h.ended.Sub(start), w.after())
		}
	})
}

// TestMoves: hosts that announced a move may be paused for as long as a move may take, one after the other or at once; one that is
// paused for longer is evicted.
func TestMoves(t *testing.T) {
	each(t, 3, func(t *testing.T, w *network) {
		w.run(5 * time.Second)
		for range 2 {
			pauses := w.rng.Perm(w.n)[:1+w.rng.IntN(w.n-1)]
			for _, id := range pauses {
				w.moves(id)
				w.later(float64(w.rng.IntN(20)), func() { w.paused[id] = true })
			}
			w.run(20 * time.Second)
			for _, id := range pauses {
				w.later(float64(w.rng.IntN(95)), func() { w.paused[id] = false })
			}
			w.run(130 * time.Second)
		}
		if len(w.evicted) > 0 || !w.over.IsZero() {
			t.Fatalf("evicted are%s, the job ended at %v", w.after(), w.over)
		}
		id := w.rng.IntN(w.n)
		w.moves(id)
		w.paused[id] = true
		w.run(w.timing.MoveLease - 2*time.Second)
		if len(w.evicted) > 0 {
			t.Fatalf("host %d moves, evicted are%s", id, w.after())
		}
		w.run(10 * time.Second)
		if len(w.evicted) != 1 || w.evicted[id].IsZero() {
			t.Errorf("the move of host %d never ends, evicted are%s", id, w.after())
		}
	})
}

// TestHealthyHosts: whatever befalls other hosts, one that runs, and hears the launcher and all that run, is never evicted; in the end
// all dead hosts are.
func TestHealthyHosts(t *testing.T) {
	each(t, 4, func(t *testing.T, w *network) {
		w.run(5 * time.Second)
		order := w.rng.Perm(w.n)
		healthy, others := order[:2], order[2:]
		some := func() []int {
			return slices.DeleteFunc(slices.Clone(others), func(int) bool { return w.rng.IntN(2) == 0 })
		}
		for range 30 {
			switch w.rng.IntN(6) {
			case 0:
				w.part(some(), some(), true)
			case 1:
				w.part(some(), []int{w.n}, true)
			case 2:
				for _, id := range some() {
					w.paused[id] = w.rng.IntN(2) == 0
				}
			case 3:
				for _, id := range some() {
					w.moves(id)
				}
			case 4:
				clear(w.cut)
			case 5:
				if w.rng.IntN(5) == 0 {
					id := others[w.rng.IntN(len(others))]
					w.dead[id], w.hungUp[id] = true, w.rng.IntN(2) == 0
				}
			}
			w.run(time.Duration(1+w.rng.IntN(20)) * time.Second)
		}
		clear(w.cut)
		clear(w.paused)
		w.run(w.timing.MoveLimit + time.Minute) // until no announced move is believed in
		for id, h := range w.hosts {
			switch {
			case slices.Contains(healthy, id) && (!w.evicted[id].IsZero() || !h.ended.IsZero()):
				t.Errorf("host %d was there all the time; evicted are%s", id, w.after())
			case w.dead[id] && w.evicted[id].IsZero():
				t.Errorf("host %d is dead and was never evicted", id)
			}
		}
	})
}

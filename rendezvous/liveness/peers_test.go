package liveness_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
)

var start = time.Unix(1000, 0)

func at(second int) time.Time { return start.Add(time.Duration(second) * time.Second) }

// watched has one host look at its peer, host 1, once per second, and writes down what it reports.
type watched struct {
	lease   time.Duration // 0 for the default
	fixed   bool          // by the user
	events  map[int]func(p *liveness.Peers)
	waits   func(second int) bool // whether something that was sent to the peer is not answered
	answers func(second int) bool // whether the peer answers something
	heard   func(second int) time.Time
	misses  func(second int) bool // whether a new world waits for the peer
	hungUp  func(second int) bool
}

func (w watched) report(seconds int) string {
	timing := liveness.Default()
	gossip := timing.Lease
	lease := timing.Lease
	if w.lease > 0 {
		lease = w.lease
	}
	if w.fixed {
		gossip = lease
	}
	p := liveness.NewPeers(timing, gossip, w.fixed)
	p.World([]int{0, 1}, lease)
	var got []string
	var last wire.Evidence
	answered := start.Add(-time.Minute)
	for s := range seconds {
		if f := w.events[s]; f != nil {
			f(p)
		}
		if w.answers != nil && w.answers(s) {
			answered = at(s)
		}
		seen := liveness.Seen{Unanswered: map[int]time.Time{}, Heard: func(int) time.Time { return time.Time{} }}
		if w.waits != nil && w.waits(s) {
			seen.Unanswered[1] = answered
		}
		if w.heard != nil {
			seen.Heard = func(int) time.Time { return w.heard(s) }
		}
		if w.misses != nil && w.misses(s) {
			seen.Missing = []int{1}
		}
		if w.hungUp != nil && w.hungUp(s) {
			seen.HungUp = []int{1}
		}
		for _, e := range p.Look(at(s), seen) {
			got = append(got, fmt.Sprintf("%s@%d", strings.Join(changes(last, e), "+"), s))
			last = e
		}
	}
	return strings.Join(got, " ")
}

// changes puts into words what is new about a peer.
func changes(from, to wire.Evidence) (words []string) {
	add := func(is bool, word string) {
		if is {
			words = append(words, word)
		}
	}
	add(to.UnansweredMS > 0 && from.UnansweredMS == 0, "notice")
	add(to.UnansweredMS == 0 && from.UnansweredMS > 0, "answers")
	add(to.AwaitedMS > 0 && from.AwaitedMS == 0, "awaited")
	add(to.AwaitedMS == 0 && from.AwaitedMS > 0, "came")
	add(to.HungUp && !from.HungUp, "hung up")
	add(!to.HungUp && from.HungUp, "connected")
	if to.Suspicion != from.Suspicion {
		words = append(words, map[wire.Suspicion]string{wire.NoSuspicion: "fine", wire.LeaseEndsSoon: "warn", wire.NeverReached: "unreached", wire.LeaseOver: "lost"}[to.Suspicion])
	}
	if words == nil {
		words = []string{"again"}
	}
	return words
}

// TestGossip: a peer that gossip has given up is suspected when its lease is over: later if the lease is longer than gossip's, if the
// peer moves, or if this host was paused.
func TestGossip(t *testing.T) {
	lost := func(p *liveness.Peers) { p.GossipLost(start, 1) }
	moves := func(id int, until time.Time) func(*liveness.Peers) {
		return func(p *liveness.Peers) { p.Moves(start, id, until); lost(p) }
	}
	for name, tc := range map[string]struct {
		watched
		want string
	}{
		"nothing known":                    {watched{events: map[int]func(*liveness.Peers){0: lost}}, "lost@0"},
		"a longer lease":                   {watched{lease: 120 * time.Second, events: map[int]func(*liveness.Peers){0: lost}}, "lost@90"},
		"it moves":                         {watched{events: map[int]func(*liveness.Peers){0: moves(1, at(70))}}, "lost@90"},
		"it moves, announced long ago":     {watched{events: map[int]func(*liveness.Peers){0: moves(1, at(1))}}, "lost@90"},
		"it moves, announced too long ago": {watched{events: map[int]func(*liveness.Peers){0: moves(1, at(-1))}}, "lost@0"},
		"it moves, with a longer lease":    {watched{lease: 130 * time.Second, events: map[int]func(*liveness.Peers){0: moves(1, at(70))}}, "lost@100"},
		"it moved": {watched{events: map[int]func(*liveness.Peers){0: func(p *liveness.Peers) {
			p.Moves(start, 1, at(70))
			moves(1, time.Time{})(p)
		}}}, "lost@0"},
		"another one moves": {watched{events: map[int]func(*liveness.Peers){0: moves(2, at(70))}}, "lost@0"},
		"the user decides":  {watched{fixed: true, events: map[int]func(*liveness.Peers){0: moves(1, at(70))}}, "lost@0"},
		"this host was paused": {watched{events: map[int]func(*liveness.Peers){0: func(p *liveness.Peers) {
			p.Paused(start)
			lost(p)
		}}}, "lost@30"},
		"this host was paused later": {watched{lease: 40 * time.Second, events: map[int]func(*liveness.Peers){0: lost, 9: func(p *liveness.Peers) { p.Paused(at(9)) }}}, "lost@49"},
		"its announcement comes late, twice": {watched{lease: 40 * time.Second, events: map[int]func(*liveness.Peers){0: lost,
			1: func(p *liveness.Peers) { p.Moves(at(1), 1, at(1000)) }, 2: func(p *liveness.Peers) { p.Moves(at(2), 1, at(1000)) }}}, "lost@90"},
		"it comes back in time": {watched{lease: 40 * time.Second, events: map[int]func(*liveness.Peers){0: lost, 9: func(p *liveness.Peers) { p.GossipHeard(1) }}}, ""},
		"it comes back late":    {watched{events: map[int]func(*liveness.Peers){0: lost, 9: func(p *liveness.Peers) { p.GossipHeard(1) }}}, "lost@0 fine@9"},
		"its link was heard between two outages": {watched{events: map[int]func(*liveness.Peers){0: lost},
			heard: func(int) time.Time { return at(-10) }}, "lost@20"},
		"its link was heard, and it moves": {watched{events: map[int]func(*liveness.Peers){0: moves(1, at(1000))},
			heard: func(int) time.Time { return at(-20) }}, "lost@100"},
	} {
		if got := tc.report(200); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestLinks: a peer that does not answer over its link, although gossip hears it, is worth a line, then a pre-warning, then it is lost.
func TestLinks(t *testing.T) {
	all := func(int) bool { return true }
	inTime := "warn@2" // and again and again
	for s := 5; s < 100; s += 5 {
		inTime += fmt.Sprintf(" fine@%d warn@%d", s, s+2)
	}
	type events = map[int]func(*liveness.Peers)
	moves := func(second, until int) func(*liveness.Peers) {
		return func(p *liveness.Peers) { p.Moves(at(second), 1, at(until)) }
	}
	moved := func(second int) func(*liveness.Peers) {
		return func(p *liveness.Peers) { p.Moves(at(second), 1, time.Time{}) }
	}
	paused := func(second int) func(*liveness.Peers) {
		return func(p *liveness.Peers) { p.Paused(at(second)) }
	}
	gossipLost := func(second int) func(*liveness.Peers) {
		return func(p *liveness.Peers) { p.GossipLost(at(second), 1) }
	}
	for name, tc := range map[string]struct {
		watched
		want string
	}{
		"the path breaks":                            {watched{waits: all}, "notice@5 warn@25 lost@30"},
		"a short lease":                              {watched{lease: 3 * time.Second, fixed: true, waits: all}, "warn@2 notice@5 lost@6"},
		"it reads nothing":                           {watched{lease: 3 * time.Second, fixed: true, waits: all, answers: func(s int) bool { return s%5 == 0 }}, inTime},
		"a long lease":                               {watched{lease: 120 * time.Second, waits: all}, "notice@5"},
		"it answers slowly":                          {watched{waits: all, answers: func(s int) bool { return s%4 == 0 }}, ""},
		"nothing is sent":                            {watched{}, ""},
		"nothing is sent at last":                    {watched{waits: func(s int) bool { return s < 20 }}, "notice@5 answers@20"},
		"something is sent late":                     {watched{waits: func(s int) bool { return s >= 50 }}, "notice@55 warn@75 lost@80"},
		"it answers again":                           {watched{waits: all, answers: func(s int) bool { return s >= 12 }}, "notice@5 answers@12"},
		"it answers when its lease has almost ended": {watched{waits: all, answers: func(s int) bool { return s >= 27 }}, "notice@5 warn@25 answers+fine@27"},
		"it answers too late":                        {watched{waits: all, answers: func(s int) bool { return s >= 40 }}, "notice@5 warn@25 lost@30 answers+fine@40"},
		"it moves":                                   {watched{waits: all, events: events{0: moves(0, 70)}}, "notice@5 warn+lost@70"},
		"it moved, silent since before":              {watched{waits: all, events: events{0: moves(0, 1000), 40: moved(40)}}, "notice@5 warn@65 lost@70"},
		"it moved twice, of which one report was late": {watched{waits: all, events: events{0: moves(0, 1000), 20: moved(20), 45: moved(45)}},
			"notice@5 warn@45 lost@50"},
		"the user decides":           {watched{fixed: true, waits: all, events: events{0: moves(0, 70)}}, "notice@5 warn@25 lost@30"},
		"this host was paused":       {watched{waits: all, events: events{3: paused(3)}}, "notice@8 lost@33"},
		"this host was paused later": {watched{waits: all, events: events{20: paused(20)}}, "notice@5 lost@50"},
		"gossip misses it as well":   {watched{waits: all, events: events{31: gossipLost(31)}}, "notice@5 warn@25 lost@30"},
		"gossip missed it before":    {watched{waits: all, events: events{20: gossipLost(20)}}, "notice@5 lost@20"},
		"gossip still misses it": {watched{waits: all, answers: func(s int) bool { return s >= 40 }, events: events{20: gossipLost(20)}},
			"notice@5 lost@20 answers@40"},
		"gossip hears it, its link does not": {watched{waits: all, events: events{31: gossipLost(31), 40: func(p *liveness.Peers) { p.GossipHeard(1) }}},
			"notice@5 warn@25 lost@30"},
	} {
		want := strings.ReplaceAll(tc.want, "warn+lost@70", "lost@70")
		if got := tc.report(100); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestForming: a peer that a new world waits for is worth a line after some seconds, and is lost after the lease.
func TestForming(t *testing.T) {
	until := func(s int) func(int) bool { return func(now int) bool { return now < s } }
	type events = map[int]func(*liveness.Peers)
	world := func(p *liveness.Peers) { p.World([]int{0, 1}, 10*time.Second) }
	for name, tc := range map[string]struct {
		lease  time.Duration
		misses func(int) bool
		events events
		want   string
	}{
		"nothing is missing":           {10 * time.Second, until(0), nil, ""},
		"one is missing":               {10 * time.Second, until(20), nil, "awaited@4 unreached@10 came+fine@20"},
		"the lease is short":           {time.Second, until(20), nil, "awaited@4 unreached@6 came+fine@20"},
		"it comes before it is late":   {10 * time.Second, until(3), nil, ""},
		"it comes late":                {10 * time.Second, until(9), nil, "awaited@4 came@9"},
		"it comes when it is lost":     {10 * time.Second, until(12), nil, "awaited@4 unreached@10 came+fine@12"},
		"it comes and goes":            {10 * time.Second, func(s int) bool { return s != 9 }, nil, "awaited@4 came@9 awaited@14 unreached@20"},
		"another world is formed":      {10 * time.Second, until(24), events{5: world}, "awaited@4 came@5 awaited@9 unreached@15 came+fine@24"},
		"another one when it is lost":  {10 * time.Second, until(24), events{12: world}, "awaited@4 unreached@10 came+fine@12 awaited@16 unreached@22 came+fine@24"},
		"another one in which it came": {10 * time.Second, until(12), events{12: world}, "awaited@4 unreached@10 came+fine@12"},
		"this host was paused itself":  {10 * time.Second, until(18), events{7: func(p *liveness.Peers) { p.Paused(at(7)) }}, "awaited@4 unreached@17 came+fine@18"},
	} {
		w := watched{lease: tc.lease, fixed: true, misses: tc.misses, events: tc.events}
		if got := w.report(24 + 1); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestHungUp: a peer that has ended its connections is reported, and when it has some again. In the next world it has none
// at first: it counts as it did until a link hears it, or the world has begun.
func TestHungUp(t *testing.T) {
	hungUp := func(s int) bool { return s >= 2 && s < 5 }
	world := func(p *liveness.Peers) { p.World([]int{0, 1}, 30*time.Second) }
	heard := func(s int) time.Time {
		if s < 7 {
			return time.Time{}
		}
		return at(s)
	}
	for want, w := range map[string]watched{
		"hung up@2 connected@5":         {hungUp: hungUp},
		"hung up@2 again@5 connected@7": {hungUp: hungUp, heard: heard, events: map[int]func(*liveness.Peers){5: world}},
		"hung up@2 again@5 again@6 connected@8": {hungUp: hungUp,
			events: map[int]func(*liveness.Peers){5: world, 6: world, 8: (*liveness.Peers).Formed}},
	} {
		if got := w.report(9); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestMembers: evidence is about members of the world, and is due again when another world begins.
func TestMembers(t *testing.T) {
	p := liveness.NewPeers(liveness.Default(), 30*time.Second, false)
	look := func(want ...int) {
		t.Helper()
		var got []int
		for _, e := range p.Look(start, liveness.Seen{Heard: func(int) time.Time { return time.Time{} }}) {
			got = append(got, e.Peer)
		}
		if !slices.Equal(got, want) {
			t.Errorf("reports about %v, want %v", got, want)
		}
	}
	p.GossipLost(start, 1)
	p.GossipLost(start, 2)
	p.GossipHeard(3)
	look()
	p.World([]int{0, 1, 3}, 30*time.Second)
	look(1)
	look()
	p.World([]int{0, 1, 2, 3}, 30*time.Second)
	look(1, 2)
	if all := p.All(start); len(all) != 2 {
		t.Errorf("another launcher would hear %v", all)
	}
	p.GossipHeard(2)
	look(2)
	for id, want := range map[int]liveness.State{1: liveness.Unreachable, 2: liveness.Alive, 9: liveness.Alive} {
		if got := p.State(start, id); got != want {
			t.Errorf("host %d is %v, want %v", id, got, want)
		}
	}
}

// TestScaled: a scale changes every duration, except by how late a busy machine may be, and those that both ends look for
// a connection, as a daemon does before it knows the scale.
func TestScaled(t *testing.T) {
	full, fifth := reflect.ValueOf(liveness.Default()), reflect.ValueOf(liveness.Default().Scaled(0.2))
	for i := range full.NumField() {
		name, want := full.Type().Field(i).Name, full.Field(i).Int()/5
		unscaled := []string{"PauseAfter", "FirstConnection", "BrokenGrace", "ResidentGrace", "AdoptGrace", "ConnectTimeout",
			"LoginTimeout", "RetryMin", "RetryMax"}
		if slices.Contains(unscaled, name) {
			want *= 5
		}
		if fifth.Field(i).Int() != want || want == 0 {
			t.Errorf("%s is %v, a fifth of it %v", name, full.Field(i), fifth.Field(i))
		}
	}
	if liveness.Default().Scaled(0) != liveness.Default() {
		t.Error("without a scale the durations change")
	}
}

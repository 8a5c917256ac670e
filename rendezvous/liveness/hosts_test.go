package liveness_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
)

const lease = 30

// sec is a time, in seconds since the start.
func sec(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }

// scene is a launcher with some hosts of one world, all of them heard.
type scene struct {
	hosts *liveness.Hosts
	view  liveness.View
}

func newScene(n int) *scene {
	s := &scene{hosts: liveness.NewHosts(liveness.Default())}
	s.view = liveness.View{Lease: lease * time.Second, Epoch: 5, Met: func(int, int) bool { return true }, Joiner: func(int) bool { return false }}
	for id := range n {
		s.view.Contacts = append(s.view.Contacts, liveness.Contact{ID: id, Heard: start, Line: liveness.Line{Kept: true}, Up: true, Ready: true, Member: true})
	}
	return s
}

func (s *scene) of(id int) *liveness.Contact { return &s.view.Contacts[id] }

func (s *scene) hear(at float64, ids ...int) {
	for _, id := range ids {
		s.of(id).Heard = sec(at)
	}
}

// pass looks from one time until another; after the first look all hosts are heard.
func (s *scene) pass(from, to float64) {
	for at := from; at < to; at += 0.25 {
		s.hosts.Look(sec(at), s.view)
		s.hear(at+0.25, 0, 1, 2)
	}
}

// words puts verdicts into words.
func words(verdicts []liveness.Verdict) string {
	var out []string
	for _, v := range verdicts {
		word := [...]string{"silent", "back", "broken", "mended", "isolated", "abandoned", "out of reach", "evicted"}[v.Kind]
		switch v.Kind {
		case liveness.Isolated, liveness.Abandoned:
			out = append(out, fmt.Sprintf("%s from %d after %v", word, v.Count, v.For))
		case liveness.BrokenPath, liveness.MendedPath:
			out = append(out, fmt.Sprintf("%s %d to %d", word, v.Host, v.Peer))
		case liveness.Evicted:
			cause := [...]string{"", "reported", "unreached", "cut off", "not heard", "no contact", "broken link"}[v.Evict.Cause]
			out = append(out, fmt.Sprintf("%s %d: %s", word, v.Host, cause))
		case liveness.OutOfReach:
		default:
			out = append(out, fmt.Sprintf("%s %d for %v", word, v.Host, v.For))
		}
	}
	return strings.Join(out, "; ")
}

// TestContacts: a host that cannot be reached is lost when its lease ends, and soon only if it has hung up itself, has nothing
// to lose, or others report that it is gone. A silent one is its peers' to judge, if one of them is heard.
func TestContacts(t *testing.T) {
	broken := func(s float64) liveness.Line {
		return liveness.Line{Kept: true, Broken: sec(s), Unanswered: sec(s)}
	}
	hungUp := func(s float64) liveness.Line { l := broken(s); l.HungUp = true; return l }
	blind := func(s float64) liveness.Line { l := hungUp(s); l.Blind = true; return l }
	answers := func(since, until float64) liveness.Line {
		l := hungUp(since)
		if l.Unanswered = (time.Time{}); until > 0 {
			l.Unanswered = sec(until)
		}
		return l
	}
	stands := liveness.Line{Kept: true}
	alone := func(s *scene) { s.view.Contacts = s.view.Contacts[:1] }
	otherAt := func(at float64) func(*scene) { return func(s *scene) { s.hear(at, 1) } }
	moves := func(until float64) func(*scene) { return func(s *scene) { s.hosts.Moves(0, sec(until)) } }
	for name, tc := range map[string]struct {
		line       liveness.Line
		now, heard float64
		change     []func(*scene)
		lost       bool
	}{
		"it is there":                      {line: stands, now: 100, heard: 99.5},
		"it is silent, which others judge": {line: stands, now: 100, heard: 1, change: []func(*scene){otherAt(98)}},
		"it is silent, and others have not met it": {line: stands, now: 1 + lease, heard: 1,
			change: []func(*scene){otherAt(30), func(s *scene) { s.view.Met = func(int, int) bool { return false } }}, lost: true},
		"it is silent as all others are":               {line: stands, now: 1 + lease, heard: 1, change: []func(*scene){otherAt(20)}},
		"it cannot be reached, as all others":          {line: broken(10), now: 9 + lease, heard: 9, change: []func(*scene){otherAt(9)}},
		"it hung up, and no other is heard":            {line: hungUp(10), now: 15, heard: 10, change: []func(*scene){otherAt(10)}, lost: true},
		"it is silent alone":                           {line: stands, now: 1 + lease, heard: 1, change: []func(*scene){alone}, lost: true},
		"and was for a little less":                    {line: stands, now: lease, heard: 1, change: []func(*scene){alone}},
		"it is silent and others are gone":             {line: stands, now: 1 + lease, heard: 1, change: []func(*scene){func(s *scene) { s.of(1).Ended = true }}, lost: true},
		"it is silent and others are not in its world": {line: stands, now: 1 + lease, heard: 1, change: []func(*scene){func(s *scene) { s.of(1).Member = false }}, lost: true},
		"it is silent, and in no world":                {line: stands, now: 1 + lease, heard: 1, change: []func(*scene){func(s *scene) { s.of(0).Member = false }}, lost: true},
		"it is silent alone, and moves":                {line: stands, now: 100, heard: 1, change: []func(*scene){alone, moves(1000)}},
		"it is silent alone, and starts":               {line: stands, now: 100, heard: 1, change: []func(*scene){alone, func(s *scene) { s.of(0).Ready = false }}},
		"it is silent since both were paused":          {line: stands, now: 100, heard: 1, change: []func(*scene){alone, func(s *scene) { s.hosts.Begin(sec(90)) }}},
		"it ends with its connection":                  {now: 100, heard: 1, change: []func(*scene){alone}},
		"it is cut off":                                {line: broken(10), now: 30, heard: 9},
		"its lease ends":                               {line: broken(10), now: 9 + lease, heard: 9, lost: true},
		"its lease ends as its connection breaks":      {line: broken(60), now: 61, heard: 1},
		"and a moment later":                           {line: broken(60), now: 61.5, heard: 1, lost: true},
		"it hung up":                                   {line: hungUp(10), now: 11.5, heard: 10, change: []func(*scene){alone}, lost: true},
		"it hung up on the launcher alone":             {line: hungUp(10), now: 9 + lease, heard: 10},
		"and its lease ends":                           {line: hungUp(10), now: 10 + lease, heard: 10, lost: true},
		"it hung up, and a peer does not reach it": {line: hungUp(10), now: 15, heard: 10,
			change: []func(*scene){func(s *scene) { s.hosts.Report(sec(14), 1, wire.Evidence{Peer: 0, AwaitedMS: 4000}) }}, lost: true},
		"it hung up a moment ago":                  {line: hungUp(10), now: 11, heard: 10, change: []func(*scene){alone}},
		"it hung up, but may answer":               {line: blind(10), now: 14, heard: 10, change: []func(*scene){alone}},
		"it hung up, and does not answer for long": {line: blind(10), now: 15, heard: 10, change: []func(*scene){alone}, lost: true},
		"it hung up, and answers":                  {line: answers(10, 0), now: 20, heard: 10, change: []func(*scene){alone}},
		"it hung up, and answered":                 {line: answers(10, 19), now: 20, heard: 10, change: []func(*scene){alone}},
		"it answers for too long":                  {line: answers(10, 0), now: 10 + lease, heard: 10, lost: true},
		"it hung up on another": {line: broken(10), now: 12, heard: 10,
			change: []func(*scene){func(s *scene) { s.hosts.Report(sec(11), 1, wire.Evidence{Peer: 0, HungUp: true}) }}, lost: true},
		"it hung up on another, and not for good": {line: broken(10), now: 12, heard: 10, change: []func(*scene){func(s *scene) {
			s.hosts.Report(sec(11), 1, wire.Evidence{Peer: 0, HungUp: true})
			s.hosts.Report(sec(11), 1, wire.Evidence{Peer: 0})
		}}},
		"it hung up on one that is lost": {line: broken(10), now: 12, heard: 10, change: []func(*scene){func(s *scene) {
			s.hosts.Report(sec(11), 1, wire.Evidence{Peer: 0, HungUp: true})
			s.of(1).Ended = true
		}}},
		"it is not ready":   {line: broken(10), now: 12, heard: 10, change: []func(*scene){func(s *scene) { s.of(0).Ready = false }}, lost: true},
		"the job ends":      {line: broken(10), now: 12, heard: 10, change: []func(*scene){func(s *scene) { s.view.Stopping = true }}, lost: true},
		"it is not wanted":  {line: broken(10), now: 12, heard: 10, change: []func(*scene){func(s *scene) { s.of(0).Leaving = true }}, lost: true},
		"it moves":          {line: broken(10), now: 60, heard: 9, change: []func(*scene){moves(1000)}},
		"it moves for long": {line: broken(10), now: 130, heard: 9, change: []func(*scene){moves(1000)}, lost: true},
		"it moved, and reported no end for very long": {line: broken(10), now: 60, heard: 9, change: []func(*scene){moves(60)}, lost: true},
		"this machine was paused":                     {line: hungUp(10), now: 100, heard: 9, change: []func(*scene){func(s *scene) { s.hosts.Begin(sec(99.9)) }}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(2)
			s.of(0).Line = tc.line
			s.hear(tc.heard, 0)
			s.hear(tc.now, 1)
			for _, change := range tc.change {
				change(s)
			}
			got := words(s.hosts.Look(sec(tc.now), s.view))
			if lost := strings.Contains(got, "evicted 0"); lost != tc.lost {
				t.Errorf("%q, want lost %v", got, tc.lost)
			}
			if again := words(s.hosts.Look(sec(tc.now+0.25), s.view)); tc.lost && strings.Contains(again, "evicted") {
				t.Errorf("it is evicted again: %q", again)
			}
		})
	}
}

// TestReported: a host of which another one hears nothing, and the launcher neither, is lost, also if it has yet to be taken over from
// another launcher; but not while it moves, though only the launcher knows that.
func TestReported(t *testing.T) {
	const moveLease = 120
	moving := func(s *scene) { s.hosts.Moves(1, sec(1000)) }
	for name, tc := range map[string]struct {
		change func(s *scene)
		at     float64
		lost   bool
	}{
		"it is silent":           {lost: true},
		"it is heard":            {change: func(s *scene) { s.hear(4, 1) }},
		"it is not in the world": {change: func(s *scene) { s.of(1).Member = false }},
		"it moves":               {change: moving, at: moveLease - 5},
		"it moves for long":      {change: moving, at: moveLease + 5, lost: true},
		"it is paused long after it began to move":           {change: func(s *scene) { moving(s); s.hear(100, 1) }, at: 100 + moveLease - 5},
		"it is paused for long, long after it began to move": {change: func(s *scene) { moving(s); s.hear(100, 1) }, at: 100 + moveLease + 5, lost: true},
		"it has been moved":                                  {change: func(s *scene) { moving(s); s.hosts.Moved(start, 1) }, lost: true},
		"it moves, and the user has a word":                  {change: func(s *scene) { s.view.Fixed = true; moving(s) }, lost: true},
		"it starts":                                          {change: func(s *scene) { s.of(1).Ready = false }},
		"it has yet to be taken over":                        {change: func(s *scene) { s.of(1).Ready, s.of(1).Adopted = false, true }, lost: true},
		"this launcher has just begun":                       {change: func(s *scene) { s.of(1).Ready, s.of(1).Adopted = false, true; s.hosts.Begin(sec(3)) }},
		"it has begun a while ago":                           {change: func(s *scene) { s.of(1).Ready, s.of(1).Adopted = false, true; s.hosts.Begin(sec(3)) }, at: 7, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(2)
			if tc.change != nil {
				tc.change(s)
			}
			at := max(tc.at, 4)
			s.hear(at, 0)
			s.hosts.Report(sec(at), 0, wire.Evidence{Peer: 1, Suspicion: wire.LeaseOver})
			got := words(s.hosts.Decide(sec(at), s.view))
			if want := map[bool]string{true: "evicted 1: reported"}[tc.lost]; got != want {
				t.Errorf("%q, want %q", got, want)
			}
		})
	}
}

// TestReportedWhileItMoves: that a host is to be moved excuses its silence, and the moment in which its peers find it again; not a broken
// path to one of them, for which the other would have to go, and not where the user chose the lease.
func TestReportedWhileItMoves(t *testing.T) {
	const now, reunion = 200, 10
	for name, tc := range map[string]struct {
		ended  bool    // its move
		silent float64 // to the launcher until now; after that it is heard again
		lease  time.Duration
		after  float64
		lost   bool
	}{
		"it is heard all the time":                           {lost: true},
		"it is paused":                                       {silent: 60},
		"it is back, and its peers are yet to hear it":       {silent: 60, after: reunion - 1},
		"it is back, and its peers do not hear it":           {silent: 60, after: reunion + 1, lost: true},
		"its move is over, and its peers are yet to hear it": {ended: true, silent: 60, after: 1},
		"its move is over, and its peers do not hear it":     {ended: true, silent: 60, after: reunion + 1, lost: true},
		"the user chose the lease":                           {silent: 60, lease: 70 * time.Second, after: 1, lost: true},
		"it is paused for as long as the user allows":        {silent: 60, lease: 60 * time.Second, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(3)
			if tc.lease > 0 {
				s.view.Lease, s.view.Fixed = tc.lease, true
			}
			s.hosts.Moves(2, sec(1000))
			s.hear(now, 0, 1)
			s.hear(now-tc.silent, 2)
			verdicts := s.hosts.Look(sec(now), s.view)
			for by := range 2 {
				verdicts = append(verdicts, s.hosts.Report(sec(now), by, wire.Evidence{Peer: 2, Suspicion: wire.LeaseOver})...)
				verdicts = append(verdicts, s.hosts.Decide(sec(now), s.view)...)
			}
			if tc.after > 0 {
				s.hear(now+0.25, 2)
				verdicts = append(verdicts, s.hosts.Look(sec(now+0.25), s.view)...)
				if tc.ended {
					s.hosts.Moved(sec(now+0.25), 2)
				}
				for at := 0.5; at <= tc.after; at += 0.25 {
					s.hear(now+at, 0, 1, 2)
					verdicts = append(verdicts, s.hosts.Look(sec(now+at), s.view)...)
				}
			}
			if got := words(verdicts); strings.Contains(got, "evicted 2") != tc.lost || strings.Count(got, "evicted") > 1 {
				t.Errorf("%q, want lost %v", got, tc.lost)
			}
		})
	}
}

// TestAwaited: for which host a world waits is reported once in each epoch, and of a joiner and another host it is the joiner, whichever
// reports it.
func TestAwaited(t *testing.T) {
	for name, tc := range map[string]struct {
		by, of int
		epoch  uint32
		want   string
	}{
		"a joiner is missing":           {0, 2, 5, "2 and 0"},
		"it misses another":             {2, 1, 5, "2 and 1"},
		"hosts of a world":              {0, 1, 5, "1 and 0"},
		"joiners":                       {2, 3, 5, "3 and 2"},
		"of an epoch before":            {0, 2, 4, ""},
		"a host that is in no world":    {0, 4, 5, ""},
		"a host that has been given up": {0, 5, 5, ""},
	} {
		s := newScene(6)
		s.view.Joiner = func(id int) bool { return id > 1 }
		s.of(4).Member, s.of(5).Ended = false, true
		got := ""
		for range 2 {
			if late, other, news := s.hosts.Awaited(tc.by, wire.Evidence{Peer: tc.of, Epoch: tc.epoch, AwaitedMS: 4200}, s.view); news {
				got += fmt.Sprintf("%d and %d", late, other)
			}
		}
		if got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestBrokenPaths: that two hosts do not hear each other is worth a line, once, and so is its end; not while the launcher does not hear one
// of them either, and not of hosts that are no members.
func TestBrokenPaths(t *testing.T) {
	const now = 100
	for name, tc := range map[string]struct {
		reports string // "by>of" that it does not answer, "by<of" that it does
		change  func(s *scene)
		want    string
	}{
		"one reports it":         {reports: "1>2", want: "broken 2 to 1"},
		"both report it":         {reports: "1>2 2>1", want: "broken 2 to 1"},
		"it is over":             {reports: "1>2 1<2", want: "broken 2 to 1; mended 2 to 1"},
		"only one hears again":   {reports: "1>2 2>1 1<2", want: "broken 2 to 1"},
		"one hears for a moment": {reports: "1>2 2>1 2<1 2>1", want: "broken 2 to 1"},
		"the other hears":        {reports: "1>2 2>1 2<1 1<2", want: "broken 2 to 1; mended 2 to 1"},
		"no one hears it":        {reports: "1>2 1<2", change: func(s *scene) { s.hear(now-60, 2) }, want: "silent 2 for 1m0s"},
		"it hears no one":        {reports: "1>2", change: func(s *scene) { s.hear(now-60, 1) }, want: "silent 1 for 1m0s"},
		"it was silent a moment ago": {reports: "1>2 1<2", change: func(s *scene) {
			s.hear(now-11, 2)
			s.pass(now-9, now)
		}},
		"it was silent some time ago": {reports: "1>2", change: func(s *scene) {
			s.hear(now-20, 2)
			s.hosts.Look(sec(now-11.5), s.view)
			s.pass(now-11.25, now)
		}, want: "broken 2 to 1"},
		"the launcher was paused":  {reports: "1>2 1<2", change: func(s *scene) { s.hosts.Begin(sec(now)) }},
		"it ends":                  {reports: "1>2 1<2", change: func(s *scene) { s.of(2).Ended = true }},
		"it does not hear itself":  {reports: "1>1"},
		"it was not silent before": {reports: "1<2"},
	} {
		s := newScene(3)
		s.hear(now, 0, 1, 2)
		if tc.change != nil {
			tc.change(s)
		}
		var got []liveness.Verdict
		for _, report := range strings.Fields(tc.reports) {
			var by, of int
			var what rune
			if _, err := fmt.Sscanf(report, "%d%c%d", &by, &what, &of); err != nil {
				t.Fatal(err)
			}
			e := wire.Evidence{Peer: of}
			if what == '>' {
				e.UnansweredMS = 5000
			}
			got = append(got, s.hosts.Report(sec(now), by, e)...)
			got = append(got, s.hosts.Look(sec(now), s.view)...)
		}
		if got := words(got); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestIsolated: a launcher that hears none of several hosts evicts none of them, whatever was reported before, until they must have ended
// the job by themselves; if one is heard before, all have their lease again.
func TestIsolated(t *testing.T) {
	pass := func(s *scene, from, to float64) string {
		var got []liveness.Verdict
		for at := from; at < to; at += 0.25 {
			got = append(got, s.hosts.Look(sec(at), s.view)...)
		}
		return words(got)
	}
	const silent = "silent 0 for 5s; silent 1 for 5s; silent 2 for 5s"
	s := newScene(3)
	s.view.Lease = 10 * time.Second
	s.hear(3, 0, 1, 2)
	pass(s, 3, 6)
	s.hosts.Report(sec(6), 0, wire.Evidence{Peer: 1, Suspicion: wire.LeaseOver})
	if got := pass(s, 6, 29); got != "isolated from 3 after 5s; "+silent {
		t.Errorf("until 29 s: %q", got)
	}
	s.hosts.Report(sec(29), 0, wire.Evidence{Peer: 1})
	s.hear(29, 2)
	if got := pass(s, 29, 38.75); strings.Contains(got, "evicted") || !s.hosts.IsolatedSince().IsZero() && s.hosts.IsolatedSince() != sec(29) {
		t.Errorf("one is heard again: %q, isolated since %v", got, s.hosts.IsolatedSince())
	}

	s = newScene(3)
	s.view.Lease = 10 * time.Second
	if got := pass(s, 0, 35); got != "isolated from 3 after 5s; "+silent {
		t.Errorf("until 35 s: %q", got)
	}
	if got := pass(s, 35, 35.25); got != "abandoned from 3 after 35s" {
		t.Errorf("at 35 s: %q", got)
	}
}

// TestLinkFailed: a peer whose link failed for good is evicted at once, heard or not, and once.
func TestLinkFailed(t *testing.T) {
	for name, tc := range map[string]struct {
		heard float64
		ended bool
		peer  int
		alive bool
		want  string
	}{
		"the launcher hears it": {heard: 100, peer: 1, alive: true, want: "evicted 1: broken link"},
		"it is silent as well":  {heard: 90, peer: 1, want: "evicted 1: broken link"},
		"it has ended":          {heard: 100, ended: true, peer: 1},
		"it is unknown":         {heard: 100, peer: 9},
	} {
		s := newScene(2)
		s.hear(tc.heard, 1)
		s.of(1).Ended = tc.ended
		got := s.hosts.LinkFailed(sec(100), 0, tc.peer, "why", s.view)
		if words(got) != tc.want {
			t.Errorf("%s: %q, want %q", name, words(got), tc.want)
		}
		if len(got) > 0 && (got[0].Evict.Heard != tc.alive || got[0].Evict.Text != "why" || s.hosts.State(1) != liveness.Dead) {
			t.Errorf("%s: %+v, it is %v", name, got[0], s.hosts.State(1))
		}
		if again := s.hosts.LinkFailed(sec(101), 0, tc.peer, "why", s.view); again != nil {
			t.Errorf("%s: again %q", name, words(again))
		}
	}
}

// TestNotYetHeard: hosts that have not spoken yet are not silent, and the launcher is not isolated from them.
func TestNotYetHeard(t *testing.T) {
	s := newScene(2)
	s.of(0).Heard, s.of(1).Heard = time.Time{}, time.Time{}
	for now := 1.0; now < 6; now++ {
		if got := words(s.hosts.Look(sec(now), s.view)); got != "" || !s.hosts.IsolatedSince().IsZero() {
			t.Errorf("after %v s: %q, isolated since %v", now, got, s.hosts.IsolatedSince())
		}
	}
}

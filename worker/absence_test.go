package worker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gorun/topology"
)

func TestAbsences(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	const lease = 30 * time.Second
	silent := func(int) time.Time { return time.Time{} }
	for name, tc := range map[string]struct {
		before func(*absences)
		lost   int // seconds after gossip gave it up
	}{
		"nothing known":                    {func(a *absences) {}, 0},
		"a longer lease":                   {func(a *absences) { a.patience = 90 * time.Second }, 90},
		"it moves":                         {func(a *absences) { a.excuse(start, 1, at(70)) }, 90},
		"it moves, announced long ago":     {func(a *absences) { a.excuse(start, 1, at(1)) }, 90},
		"it moves, announced too long ago": {func(a *absences) { a.excuse(start, 1, at(-1)) }, 0},
		"it moves, with a longer lease":    {func(a *absences) { a.patience = 100 * time.Second; a.excuse(start, 1, at(70)) }, 100},
		"it moved":                         {func(a *absences) { a.excuse(start, 1, at(70)); a.excuse(start, 1, time.Time{}) }, 0},
		"another one moves":                {func(a *absences) { a.excuse(start, 2, at(70)) }, 0},
		"the user decides":                 {func(a *absences) { a.fixed = true; a.excuse(start, 1, at(70)) }, 0},
		"we stood still":                   {func(a *absences) { a.mistrust(at(30)) }, 30},
	} {
		a := newAbsences()
		tc.before(a)
		a.left(1, start)
		if tc.lost > 0 {
			if early := a.lost(at(tc.lost-1), lease, silent); early != nil {
				t.Errorf("%s: %v lost too early", name, early)
			}
		}
		if lost := a.lost(at(tc.lost), lease, silent); !slices.Equal(lost, []int{1}) {
			t.Errorf("%s: %v lost after %d s", name, lost, tc.lost)
		}
		if again := a.lost(at(1000), lease, silent); again != nil {
			t.Errorf("%s: %v lost twice", name, again)
		}
		if !a.back(1) || a.back(1) {
			t.Errorf("%s: it does not come back once", name)
		}
	}
	a := newAbsences()
	a.patience = 10 * time.Second
	a.left(1, start)
	a.left(2, start)
	a.left(3, start)
	if a.back(1) {
		t.Error("a host was back that was not lost yet")
	}
	a.excuse(start, 2, at(1000)) // its word came late
	a.excuse(start, 2, at(1001)) // and again, from the launcher
	if lost := a.lost(at(20), lease, silent); !slices.Equal(lost, []int{3}) {
		t.Errorf("lost %v, want 3 alone", lost)
	}
	a.mistrust(at(100))
	if lost := a.lost(at(99), lease, silent); lost != nil {
		t.Errorf("lost %v although this host stood still", lost)
	}
	if lost := a.lost(at(100), lease, silent); !slices.Equal(lost, []int{2}) {
		t.Errorf("lost %v, want 2 alone", lost)
	}
	a = newAbsences()
	a.left(1, start)
	between := func(int) time.Time { return at(-10) } // two outages
	if lost := a.lost(at(19), lease, between); lost != nil {
		t.Errorf("lost %v although its link was heard 29 s ago", lost)
	}
	if lost := a.lost(at(20), lease, between); !slices.Equal(lost, []int{1}) {
		t.Errorf("lost %v, want 1, of whom nothing was heard for 30 s", lost)
	}
	a.excuse(start, 1, at(1000))
	a.left(1, start)
	spoke := func(int) time.Time { return at(-20) }
	if lost := a.lost(at(99), lease, spoke); lost != nil {
		t.Errorf("lost %v although it moves, and its link was heard 119 s ago", lost)
	}
	if lost := a.lost(at(100), lease, spoke); !slices.Equal(lost, []int{1}) {
		t.Errorf("lost %v, want 1, of whom nothing was heard for 120 s", lost)
	}
}

func TestChanges(t *testing.T) {
	nic := topology.NIC{Name: "ens192", Speed: 10000, MTU: 9000, Up: true, Addrs: []string{"10.0.0.1/24"}}
	for want, spoil := range map[string]func(*topology.NIC){
		"":                                     func(*topology.NIC) {},
		"ens192 has 25000 Mbit/s, not 10000":   func(n *topology.NIC) { n.Speed = 25000 },
		"ens192 has an MTU of 1500, not 9000":  func(n *topology.NIC) { n.MTU = 1500 },
		"ens192 is down":                       func(n *topology.NIC) { n.Up = false },
		"ens192 has the addresses 10.0.0.2/24": func(n *topology.NIC) { n.Addrs = []string{"10.0.0.2/24"} },
		"ens192 is another device":             func(n *topology.NIC) { n.PCI = "0000:0b:00.0" },
		"ens192 is gone, ens224 is new":        func(n *topology.NIC) { n.Name = "ens224" },
	} {
		after := nic
		spoil(&after)
		if got := changes([]topology.NIC{nic}, []topology.NIC{after}); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestLinks: a peer that does not answer over the link, although gossip hears it, is told and then lost; not sooner than where there
// is a reason to wait, and not twice if gossip misses it as well.
func TestLinks(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	silent := func(int) time.Time { return time.Time{} }
	all := func(int) bool { return true }
	inTime := "soon@2" // and again and again
	for s := 5; s < 100; s += 5 {
		inTime += fmt.Sprintf(" back@%d found@%d soon@%d", s, s, s+2)
	}
	for name, tc := range map[string]struct {
		lease  int // seconds, 30 if it is 0
		before func(*absences)
		at     map[int]func(*absences)
		waits  func(second int) bool // whether something is under way
		heard  func(second int) bool // nil for never
		want   string
	}{
		"the way breaks":          {waits: all, want: "told@5 soon@25 lost@30"},
		"a short lease":           {lease: 3, waits: all, want: "soon@2 told@5 lost@6"},
		"it reads nothing":        {lease: 3, waits: all, heard: func(s int) bool { return s%5 == 0 }, want: inTime},
		"a long lease":            {lease: 120, waits: all, want: "told@5"},
		"it answers slowly":       {waits: all, heard: func(s int) bool { return s%4 == 0 }, want: ""},
		"nothing is sent":         {waits: func(int) bool { return false }, want: ""},
		"nothing is sent at last": {waits: func(s int) bool { return s < 20 }, want: "told@5 back@20"},
		"something is sent late":  {waits: func(s int) bool { return s >= 50 }, want: "told@55 soon@75 lost@80"},
		"it answers again":        {waits: all, heard: func(s int) bool { return s >= 12 }, want: "told@5 back@12"},
		"it answers when its lease has almost ended": {waits: all, heard: func(s int) bool { return s >= 27 },
			want: "told@5 soon@25 back@27 found@27"},
		"it answers too late": {waits: all, heard: func(s int) bool { return s >= 40 }, want: "told@5 soon@25 lost@30 back@40 found@40"},
		"it moves":            {before: func(a *absences) { a.excuse(start, 1, at(70)) }, waits: all, want: "told@5 soon@70 lost@70"},
		"it moved, silent since before": {before: func(a *absences) { a.excuse(start, 1, at(1000)) },
			at: map[int]func(*absences){40: func(a *absences) { a.excuse(at(40), 1, time.Time{}) }}, waits: all, want: "told@5 soon@65 lost@70"},
		"it moved twice, of which one word was late": {before: func(a *absences) { a.excuse(start, 1, at(1000)) },
			at: map[int]func(*absences){20: func(a *absences) { a.excuse(at(20), 1, time.Time{}) }, 45: func(a *absences) { a.excuse(at(45), 1, time.Time{}) }}, waits: all,
			want: "told@5 soon@45 lost@50"},
		"the user decides": {before: func(a *absences) { a.fixed = true; a.excuse(start, 1, at(70)) }, waits: all, want: "told@5 soon@25 lost@30"},
		"this host stood still": {at: map[int]func(*absences){3: func(a *absences) { a.mistrust(at(33)) }}, waits: all,
			want: "told@8 soon@33 lost@33"},
		"this host stood still later": {at: map[int]func(*absences){20: func(a *absences) { a.mistrust(at(50)) }}, waits: all,
			want: "told@5 soon@50 lost@50"},
		"gossip misses it as well": {at: map[int]func(*absences){31: func(a *absences) { a.left(1, at(31)) }}, waits: all,
			want: "told@5 soon@25 lost@30"},
		"gossip missed it before": {at: map[int]func(*absences){20: func(a *absences) { a.left(1, at(20)) }}, waits: all,
			want: "told@5 lost@20"},
		"gossip still misses it": {at: map[int]func(*absences){20: func(a *absences) { a.left(1, at(20)) }}, waits: all,
			heard: func(s int) bool { return s >= 40 }, want: "told@5 lost@20 back@40"},
	} {
		a := newAbsences()
		if tc.before != nil {
			tc.before(a)
		}
		lease := 30 * time.Second
		if tc.lease > 0 {
			lease = time.Duration(tc.lease) * time.Second
		}
		var got []string
		answered := start.Add(-time.Minute)
		for s := range 100 {
			say := func(what string) { got = append(got, fmt.Sprintf("%s@%d", what, s)) }
			if f := tc.at[s]; f != nil {
				f(a)
			}
			if tc.heard != nil && tc.heard(s) {
				answered = at(s)
			}
			awaited := map[int]time.Time{}
			if tc.waits(s) {
				awaited[1] = answered
			}
			for _, q := range a.linked(at(s), awaited) {
				if say(map[bool]string{false: "told", true: "back"}[q.back]); q.lost {
					say("found")
				}
			}
			for range a.soon(at(s), lease) {
				say("soon")
			}
			for range a.lost(at(s), lease, silent) {
				say("lost")
			}
		}
		if got := strings.Join(got, " "); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
	a := newAbsences()
	awaited := map[int]time.Time{1: {}}
	a.linked(start, awaited)
	if lost := a.lost(at(6), time.Second, silent); !slices.Equal(lost, []int{1}) {
		t.Fatalf("lost %v, want 1", lost)
	}
	a.left(1, at(6))
	a.lost(at(7), time.Second, silent)
	if a.back(1) {
		t.Error("it is found again for gossip although it does not answer over the link")
	}
	if got := a.allMissed(); !slices.Equal(got, []int{1}) {
		t.Errorf("missed are %v, want 1", got)
	}
}

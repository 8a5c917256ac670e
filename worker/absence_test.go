package worker

import (
	"slices"
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
		"it moves":                         {func(a *absences) { a.excuse(1, at(70)) }, 90},
		"it moves, announced long ago":     {func(a *absences) { a.excuse(1, at(1)) }, 90},
		"it moves, announced too long ago": {func(a *absences) { a.excuse(1, at(-1)) }, 0},
		"it moves, with a longer lease":    {func(a *absences) { a.patience = 100 * time.Second; a.excuse(1, at(70)) }, 100},
		"it moved":                         {func(a *absences) { a.excuse(1, at(70)); a.excuse(1, time.Time{}) }, 0},
		"another one moves":                {func(a *absences) { a.excuse(2, at(70)) }, 0},
		"the user decides":                 {func(a *absences) { a.fixed = true; a.excuse(1, at(70)) }, 0},
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
	a.excuse(2, at(1000)) // its word came late
	a.excuse(2, at(1001)) // and again, from the launcher
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
	a.excuse(1, at(1000))
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

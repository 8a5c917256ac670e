package machine

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/topology/facts"
	"gorun/worker/loop"
)

// quiet is a daemon that data reaches by a NIC, and that reports nothing.
type quiet struct{ nic string }

func (q *quiet) DataNIC(topology.Host) string { return q.nic }
func (q *quiet) DataRDMA() string             { return "" }
func (*quiet) NetworkChanged()                {}
func (*quiet) Changed(context.Context)        {}

// onHost is a daemon that only has to report what its machine is.
func onHost(t *testing.T, self topology.Host, file string) (m *HostMachine, said func() []string) {
	t.Helper()
	known, err := facts.Parse([]byte(file))
	must.Do(t, err)
	var out bytes.Buffer
	job := &wire.Job{JobOptions: wire.JobOptions{Verbose: true}, Name: self.Name, HostID: 1}
	cfg := Config{Component: loop.Component{Job: job, Loop: loop.New(), Out: wire.NewWriter(&out)}, Daemon: &quiet{}}
	m = &HostMachine{cfg: cfg, job: job, self: self, facts: known}
	return m, func() (lines []string) {
		in := wire.NewReader(&out)
		for {
			m, err := in.Read()
			if err != nil {
				out.Reset()
				return lines
			}
			lines = append(lines, m.(*wire.Log).Text)
		}
	}
}

// observed reports the end of its move to a machine.
func observed(m *HostMachine, end *wire.Migrating) {
	m.MovedTo(end)
	m.WarnOfLabels()
}

func expect(t *testing.T, said []string, want ...string) {
	t.Helper()
	if !slices.Equal(said, want) {
		t.Errorf("said %q, should be %q", said, want)
	}
}

func TestChangedInto(t *testing.T) {
	nics := func(names ...string) (nics []topology.NIC) {
		for _, name := range names {
			nics = append(nics, topology.NIC{Name: name, Node: -1, Up: true, Speed: 10000})
		}
		return nics
	}
	before := topology.Host{Name: "h", NICs: nics("e0", "e1"), Nodes: []topology.Node{{ID: 0, CPUs: []int{0, 1}, MemBytes: 1 << 30}},
		Labels: map[string]string{"esxi": "a", "esxi-release": "8.0.2"}}
	d, said := onHost(t, before, "hosts:\n  h:\n    rack: r1\n    nics:\n      e0: {node: 0}\n      e1: {speed_mbit: 25000}\n")
	d.facts.Apply(&d.self)
	expect(t, said())

	// It is moved: nothing but its labels differs, and one who does not answer takes no label away.
	moved := before
	moved.NICs, moved.Labels = nics("e0", "e1"), map[string]string{"esxi": "b"}
	d.changedInto(t.Context(), moved, time.Now(), "after the pause ")
	expect(t, said(), "after the pause esxi is b, not a")
	if want := (map[string]string{"esxi": "b", "esxi-release": "8.0.2", "rack": "r1"}); !maps.Equal(d.self.Labels, want) {
		t.Errorf("labels %v, should be %v", d.self.Labels, want)
	}
	if d.unreported != repeatNews {
		t.Errorf("told %d times again", d.unreported)
	}
	if before.Labels["esxi"] != "a" {
		t.Error("labels that others may hold were changed")
	}
	moved.NICs, moved.Labels = nics("e0", "e1"), nil
	d.changedInto(t.Context(), moved, time.Now(), "")
	expect(t, said())

	// An interface that the topology file names is gone: what it holds about the others stays.
	less := before
	less.NICs, less.Labels = nics("e1", "e2"), nil
	d.changedInto(t.Context(), less, time.Now(), "")
	expect(t, said(), "e0 is gone, e2 is new", "the topology file does not fit any more: line 5: h has no NIC e0")
	if len(d.self.NICs) != 2 || d.self.NICs[0].Speed != 25000 {
		t.Errorf("interfaces %+v", d.self.NICs)
	}

	more := less
	more.NICs = nics("e1", "e2")
	more.Nodes = []topology.Node{{ID: 0, CPUs: []int{0, 1, 2, 3}, MemBytes: 2 << 30}}
	d.changedInto(t.Context(), more, time.Now(), "")
	expect(t, said(), "NUMA node 0 has changed",
		"the topology file does not fit any more: line 5: h has no NIC e0")
}

// TestPlaced: labels that the end of a move brings win over those of the file, which may be from before it.
func TestPlaced(t *testing.T) {
	d, said := onHost(t, topology.Host{Name: "h"}, "hosts:\n  h: {esxi: e1, rack: r1, zone: z, by: vCenter}\n")
	d.facts.Apply(&d.self)
	observed(d, &wire.Migrating{Host: d.job.HostID, State: wire.MoveEnds, Text: "moved from e1", Labels: map[string]string{"esxi": "e2", "rack": "r2"}, By: "vCenter"})
	expect(t, said(), "zone of the topology file still counts after the move: if it is not so any more, correct the file for the next job")
	for range 2 { // that it is looked at once more changes nothing
		d.changedInto(t.Context(), topology.Host{Name: "h"}, time.Now(), "after the pause ")
		if want := (map[string]string{"esxi": "e2", "rack": "r2", "zone": "z"}); !maps.Equal(d.self.Labels, want) || d.self.LabelSources["esxi"] != "vCenter" {
			t.Errorf("labels %v, should be %v, told by %v", d.self.Labels, want, d.self.LabelSources)
		}
	}
	expect(t, said(), "after the pause esxi is e2, not e1, rack is r2, not r1")
}

// TestMovedOnceMore: what the end of a move reported is not known to be true after another one of which only the
// session speaks, or no one reports where it went: what the machine reports itself counts then.
func TestMovedOnceMore(t *testing.T) {
	ends := &wire.Migrating{Host: 1, State: wire.MoveEnds, Labels: map[string]string{"esxi": "e2", "rack": "r2"}, By: "vCenter"}
	d, said := onHost(t, topology.Host{Name: "h", Session: "0x1"}, "hosts:\n  h: {esxi: e1, rack: r1}\n")
	d.facts.Apply(&d.self)
	early := time.Now()
	observed(d, ends)
	d.changedInto(t.Context(), topology.Host{Name: "h", Session: "0x1"}, early, "")
	expect(t, said(), "esxi is e2, not e1, rack is r2, not r1")
	d.changedInto(t.Context(), topology.Host{Name: "h", Session: "0x2"}, time.Now(), "")
	expect(t, said(), "its session is another one")
	d.changedInto(t.Context(), topology.Host{Name: "h", Session: "0x3"}, time.Now(), "")
	expect(t, said(), "its session is another one")
	d.changedInto(t.Context(), topology.Host{Name: "h", Session: "0x3", Labels: map[string]string{"esxi": "e9"}, LabelSources: map[string]string{"esxi": "guestinfo"}}, time.Now(), "")
	expect(t, said(), "esxi is e9, not e2")
	if want := (map[string]string{"esxi": "e9", "rack": "r2"}); !maps.Equal(d.self.Labels, want) || d.self.LabelSources["esxi"] != "guestinfo" {
		t.Errorf("labels %v, should be %v, told by %v", d.self.Labels, want, d.self.LabelSources)
	}
	observed(d, ends) // one that reports where it is now ends all doubts
	d.changedInto(t.Context(), topology.Host{Name: "h", Session: "0x4"}, time.Now(), "")
	expect(t, said(), "its session is another one, esxi is e2, not e9")
	observed(d, &wire.Migrating{Host: 1, State: wire.MoveEnds}) // and one that does not is one
	if !d.placed.past {
		t.Error("what an earlier move reported still counts")
	}
}

func TestChanges(t *testing.T) {
	nic := topology.NIC{Name: "ens192", Speed: 10000, MTU: 9000, Up: true, Addrs: []string{"10.0.0.1/24"}}
	for want, spoil := range map[string]func(*topology.NIC){
		"":                               func(n *topology.NIC) { n.Given = true },
		"[ens192 has changed]":           func(n *topology.NIC) { n.Addrs = []string{"10.0.0.2/24"} },
		"[ens192 is gone ens224 is new]": func(n *topology.NIC) { n.Name = "ens224" },
	} {
		after := nic
		spoil(&after)
		before, _ := partsOf(topology.Host{NICs: []topology.NIC{nic}})
		now, _ := partsOf(topology.Host{NICs: []topology.NIC{after}})
		if got := changes(before, now); len(got) == 0 && want != "" || len(got) > 0 && fmt.Sprint(got) != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

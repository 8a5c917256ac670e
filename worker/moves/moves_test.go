package moves

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/worker/loop"
	"gorun/worker/machine"
	"gorun/worker/migrate"
)

// TestLabelsAfterMove: a host that was moved reports which labels may not be true of where it is now.
func TestLabelsAfterMove(t *testing.T) {
	for file, want := range map[string][]string{
		"hosts:\n  h: {esxi: e, rack: r, by: vCenter}\n":               {"esxi, rack of the topology file still counts after the move: if it is not so any more, correct the file for the next job"},
		"hosts:\n  h: {esxi: e, session: '0x1'}\n  other: {esxi: e}\n": nil,
	} {
		var out bytes.Buffer
		job := &wire.Job{JobOptions: wire.JobOptions{Verbose: true, Topology: []byte(file)}, Name: "h", HostID: 1}
		own := loop.Component{Job: job, Loop: loop.New(), Out: wire.NewWriter(&out)}
		here, err := machine.New(machine.Config{Component: own}, topology.Host{Session: "0x2"})
		must.Do(t, err)
		m := New(Config{Component: own, Daemon: alone{}, Machine: here, Ring: edges{}})
		m.take(t.Context(), migrate.Event{Kind: migrate.Stays}, nil)
		expectLogs(t, &out)
		m.take(t.Context(), migrate.Event{Kind: migrate.Ends}, nil)
		expectLogs(t, &out, want...)
		m.Host(t.Context(), &wire.Migrating{Host: job.HostID, State: wire.MoveEnds, Moved: true})
		expectLogs(t, &out, want...)
	}
}

// vSphere may move the machine when no queue pair is left, not sooner; a move that is over by then is not announced. RDMA
// goes on when the announced move ends, and neither a pause of the host nor what others report of it ends that move.
func TestRDMAPausesForMove(t *testing.T) {
	var d rdmaDaemon
	job := &wire.Job{HostID: 1}
	m := New(Config{Component: loop.Component{Job: job}, Daemon: &d, Machine: anyMachine{}, Ring: edges{},
		Pulse: migrate.Pulse{Period: time.Second, Late: time.Second}})
	expect := func(want ...string) {
		t.Helper()
		if !slices.Equal(d.calls, want) {
			t.Errorf("%q, should be %q", d.calls, want)
		}
		d.calls = nil
	}
	take := func(kind migrate.Kind) {
		m.take(t.Context(), migrate.Event{Kind: kind}, func() { d.calls = append(d.calls, "ready") })
	}
	m.Beat(t.Context(), time.Second)
	take(migrate.Starts)
	expect("pause")
	m.Beat(t.Context(), time.Minute)
	m.Host(t.Context(), &wire.Migrating{Host: job.HostID, State: wire.MoveEnds})
	expect()
	d.paused()
	expect("announce", "ready")
	take(migrate.Ends)
	expect("resume")
	m.Beat(t.Context(), time.Hour)
	expect("resume")

	take(migrate.Starts)
	take(migrate.Stays)
	d.paused()
	expect("pause", "resume")
}

// rdmaDaemon is a daemon that is in no world and notes what it is called for.
type rdmaDaemon struct {
	alone
	calls  []string
	paused func() // what PauseRDMA was given
}

func (d *rdmaDaemon) PauseRDMA(_ context.Context, then func()) {
	d.calls = append(d.calls, "pause")
	d.paused = then
}

func (d *rdmaDaemon) ResumeRDMA() { d.calls = append(d.calls, "resume") }

func (d *rdmaDaemon) Announce(_ context.Context, _ wire.Message, then func()) {
	d.calls = append(d.calls, "announce")
	then()
}

// anyMachine takes note of nothing.
type anyMachine struct{ Machine }

func (anyMachine) WarnOfLabels()           {}
func (anyMachine) MovedTo(*wire.Migrating) {}

// alone is a daemon that is in no world.
type alone struct{ Daemon }

func (alone) Rejoin(context.Context) func() { return nil }
func (alone) ResumeRDMA()                   {}

// edges are those of a host that knows none.
type edges struct{}

func (edges) Ring() []int    { return nil }
func (edges) ForgetOwn()     {}
func (edges) ForgetPeer(int) {}

// expectLogs compares what the launcher got with the texts of log messages, and forgets it.
func expectLogs(t *testing.T, out *bytes.Buffer, want ...string) {
	t.Helper()
	var said []string
	for in := wire.NewReader(out); ; {
		m, err := in.Read()
		if err != nil {
			break
		}
		said = append(said, m.(*wire.Log).Text)
	}
	out.Reset()
	if !slices.Equal(said, want) {
		t.Errorf("said %q, should be %q", said, want)
	}
}

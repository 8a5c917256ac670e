package moves

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/worker/loop"
	"gorun/worker/machine"
	"gorun/worker/migrate"
)

// TestLabelsAfterMove: a host that was moved reports which labels may not be true of where it is now.
func TestLabelsAfterMove(t *testing.T) {
	for file, want := range map[string][]string{
		"hosts:\n  h: {esxi: e, rack: r, by: vCenter}\n":               {"esxi, rack of the topology file still counts after the move: if it is not so any more, write the file again, this job reads it"},
		"hosts:\n  h: {esxi: e, session: '0x1'}\n  other: {esxi: e}\n": nil,
	} {
		var out bytes.Buffer
		job := &wire.Job{JobOptions: wire.JobOptions{Verbose: true, Topology: []byte(file)}, Name: "h", HostID: 1}
		to, l := wire.NewWriter(&out), loop.New()
		here, err := machine.New(machine.Config{Job: job, Loop: l, Out: to}, topology.Host{Session: "0x2"})
		if err != nil {
			t.Fatal(err)
		}
		m := New(Config{Job: job, Loop: l, Daemon: alone{}, Machine: here, Ring: edges{}})
		m.take(t.Context(), migrate.Event{Kind: migrate.Stays}, nil)
		expectLogs(t, &out)
		m.take(t.Context(), migrate.Event{Kind: migrate.Ends}, nil)
		expectLogs(t, &out, want...)
		m.Host(t.Context(), &wire.Migrating{Host: job.HostID, State: wire.MoveEnds, Moved: true})
		expectLogs(t, &out, want...)
	}
}

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

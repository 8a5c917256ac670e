package worker

import (
	"bytes"
	"slices"
	"testing"

	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/worker/loop"
	"gorun/worker/machine"
	"gorun/worker/migrate"
)

// TestLabelsAfterMove: whoever has been moved says which labels nobody knows to be true of where it is now.
func TestLabelsAfterMove(t *testing.T) {
	for file, want := range map[string][]string{
		"hosts:\n  h: {esxi: e, rack: r, by: vCenter}\n":               {"esxi, rack of the topology file still counts after the move: if it is not so any more, write the file again, this job reads it"},
		"hosts:\n  h: {esxi: e, session: '0x1'}\n  other: {esxi: e}\n": nil,
	} {
		var out bytes.Buffer
		job := &wire.Job{JobOptions: wire.JobOptions{Verbose: true, Topology: []byte(file)}, Name: "h", HostID: 1}
		d := &daemon{job: job, out: wire.NewWriter(&out), loop: loop.New(), peers: newPeerWatch(job)}
		d.openTuning()
		d.openMembership()
		cfg := machine.Config{Job: job, Loop: d.loop, Out: d.out, Daemon: machineDaemon{d}}
		var err error
		if d.machine, err = machine.New(cfg, topology.Host{Session: "0x2"}); err != nil {
			t.Fatal(err)
		}
		d.moves(t.Context(), migrate.Event{Kind: migrate.Stays}, nil)
		expectLogs(t, &out)
		d.moves(t.Context(), migrate.Event{Kind: migrate.Ends}, nil)
		expectLogs(t, &out, want...)
		d.hostMoves(t.Context(), &wire.Migrating{Host: d.job.HostID, State: wire.MoveEnds, Moved: true})
		expectLogs(t, &out, want...)
	}
}

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

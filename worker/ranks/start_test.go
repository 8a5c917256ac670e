package ranks

import (
	"bytes"
	"io"
	"testing"

	"gorun/contrib/must"
	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/worker/loop"
	"gorun/worker/member"
)

// world is a daemon that has only a world.
type world struct {
	Daemon
	roster *wire.Roster
}

func (w world) World() member.View  { return member.View{Roster: w.roster} }
func (w world) Host() topology.Host { return topology.Host{} }

// TestSpareWithoutGPU: spares for which a host has no GPU fail before they start, once, and the host goes on.
func TestSpareWithoutGPU(t *testing.T) {
	var sent bytes.Buffer
	roster := &wire.Roster{Spares: []wire.Rank{{Process: 4, Slot: 1}, {Process: 5, Slot: 2}}}
	s := &Starter{processes: processes{}, cfg: Config{Component: loop.Component{Job: &wire.Job{JobOptions: wire.JobOptions{GPUs: []string{"0"}}}, Out: wire.NewWriter(&sent)}, Daemon: world{roster: roster}}}
	s.StartSpares(t.Context())
	s.StartSpares(t.Context())
	r := wire.NewReader(&sent)
	for i, why := range []string{"choose GPUs: 2 ranks, but 1 GPU", "choose GPUs: 3 ranks, but 1 GPU"} {
		msg, err := r.Read()
		must.Do(t, err)
		if e, ok := msg.(*wire.Exited); !ok || e.Code != exitUsage || e.Process != 4+i || e.Error != why {
			t.Errorf("process %d: %+v", 4+i, msg)
		}
	}
	if msg, err := r.Read(); err != io.EOF {
		t.Errorf("then %+v, %v", msg, err)
	}
}

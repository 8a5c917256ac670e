// Package launcher starts a job and sees it through: it has a daemon started on every host, sends each the ranks that
// package plan or package elastic placed there, passes output on, waits, and comes to one verdict. Run takes everything
// it needs in a Spec, reads no environment and exits no process.
//
// Run owns all goroutines it starts and returns when they have ended. Package talk holds the conversations with the
// daemons, and Spec.Dial begins them (package dial). What the launcher knows about a daemon it knows from the messages
// of rendezvous/wire, and from when it last heard one.
//
// The files form layers; each uses only those below it:
//
//   - launcher.go, run.go: Run, and the loop that handles one event at a time;
//   - events.go, fence.go, moves.go, drain.go, lags.go: what hosts, and others, report;
//   - liveness.go, isolated.go, evict.go: which hosts are lost;
//   - decide.go: what package elastic decides, carried out by roster.go, start.go and failover.go;
//   - timeout.go, verdict.go: how the job ends;
//   - view.go, waits.go, stragglers.go, snapshot.go, ring.go: what the launcher knows of its hosts;
//   - job.go and state.go: job acts on what state knows; then their parts: hosts.go, membership.go, failover.go, …;
//   - spec.go: what a caller says about the job.
package launcher

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"gorun/launcher/talk"
	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
)

// Run runs the job and returns nil when every rank exited with 0. Otherwise the error explains the end:
// one of the types of package failure, or the cause of ctx. When it returns, every daemon has ended or
// its connection is closed, which ends it.
func Run(ctx context.Context, spec Spec) error {
	j, err := newJob(&spec)
	if err != nil {
		return err
	}
	talk, hangUp := context.WithCancel(context.Background()) // the end of ctx stops the job in order
	defer hangUp()
	var talks sync.WaitGroup
	j.converse = j.conversations(talk, &talks)
	for _, h := range j.hosts { // of another launcher
		if !h.ended {
			j.converse(h)
		}
	}
	j.began = time.Now()
	if j.membership.first != nil {
		j.discovered(j.membership.first)
	}
	err = j.loop(ctx)
	j.tellLeft(time.Now())
	hangUp()
	spec.Output.Hurry() // a terminal that takes nothing may be what keeps conversations
	talks.Wait()
	j.recordFailure(err)
	j.tellEdges()
	j.showSplits()
	if text := j.network.carried.text(); spec.Verbose && text != "" {
		spec.Note("gorun: %s", text)
	}
	return err
}

func newJob(spec *Spec) (*job, error) {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, fmt.Errorf("make job secret: %w", err)
	}
	id := make([]byte, 8)
	if _, err := rand.Read(id); err != nil {
		return nil, fmt.Errorf("make job id: %w", err)
	}
	j := &job{state: state{spec: spec, membership: newMembership(spec), alive: liveness.NewHosts(spec.Timing())},
		events: make(chan talk.Event), failover: failover{replicator: spec.Replicator},
		network: network{edges: map[int][]wire.Edge{}}}
	j.membership.hears = j.hearsLately
	for rank, r := range spec.Placement.Ranks {
		j.processes.place(rank, r.Host)
	}
	first, elastic := spec.ProgramOf(0), spec.Elastic != nil
	j.template = wire.Job{JobOptions: spec.JobOptions, ID: hex.EncodeToString(id), Secret: secret,
		Argv: first.Argv, Dir: first.Dir, Elastic: elastic, Open: !j.membership.config.Listed,
		Alone: !elastic && len(spec.Placement.Hosts) == 1}
	if spec.Snapshot != nil {
		return j, j.restore(spec.Snapshot)
	}
	return j, nil
}

// conversations returns what starts the conversation with a host. It ends with ctx, and talks waits for it. A host that
// is used again is cleaned up first: the conversation before is over by then.
func (j *job) conversations(ctx context.Context, talks *sync.WaitGroup) func(*host) {
	type conversation struct {
		host *host
		over chan struct{}
	}
	last := map[string]conversation{} // by the name of the host
	return func(h *host) {
		former, present := last[h.name], conversation{h, make(chan struct{})}
		last[h.name] = present
		again := former.host != nil && former.host.ended
		line, hangUp := context.WithCancel(ctx)
		h.hangUp = hangUp
		talks.Go(func() {
			defer close(present.over)
			defer hangUp()
			if again {
				select {
				case <-former.over:
				case <-line.Done():
				}
			}
			h.Talk(ctx, line, j.events)
		})
	}
}

package worker

import (
	"context"
	"sync"
	"time"

	"gorun/rendezvous/wire"
	"gorun/worker/compat"
	"gorun/worker/loop"
	"gorun/worker/machine"
	"gorun/worker/member"
	"gorun/worker/moves"
	"gorun/worker/network"
	"gorun/worker/pauses"
	"gorun/worker/ranks"
	"gorun/worker/session"
	"gorun/worker/shipped"
	"gorun/worker/stall"
	"gorun/worker/tune"
)

// daemon is the state of one host in one job; only loop touches it once open has returned.
type daemon struct {
	cfg   Config
	out   *wire.Writer
	inbox inbox
	loop  *loop.Loop
	log   *journal

	job      *wire.Job
	ready    *wire.Ready    // that was sent
	files    *shipped.Store // of what the job brings; nil if that is nothing
	tree     string         // where the job's tree is on this host
	venv     string         // where its environment of Python is, "" for none
	flown    bool           // what the flight recorder has was sent, as the job ends
	machine  *machine.HostMachine
	member   *member.Membership
	peers    *peerWatch
	net      *network.Network
	engine   *engine
	sessions *session.Server
	ranks    *ranks.Ranks
	mpi      *compat.MPI
	horovod  *compat.Horovod

	pauses *pauses.Pauses
	moves  *moves.Moves
	stalls *stall.Watch
	tune   *tune.Tuner
	paths  paths
}

// post runs f on the loop's goroutine, unless the daemon is closing.
func (d *daemon) post(ctx context.Context, f func()) { d.loop.Post(ctx, f) }

// component is what components get of the daemon.
func (d *daemon) component() loop.Component {
	return loop.Component{Job: d.job, Loop: d.loop, Out: d.out, Log: d.log.Logger}
}

// announceLimit is how long peers have to take an announcement.
const announceLimit = 3 * time.Second

// announce sends a message to the launcher and to all peers, and calls then when they have it, or cannot be reached.
func (d *daemon) announce(ctx context.Context, m wire.Message, then func()) {
	d.out.Write(m)
	peers := d.member.Others()
	d.loop.Go(func() {
		all := make(chan struct{})
		d.loop.Go(func() {
			defer close(all)
			var sending sync.WaitGroup
			defer sending.Wait()
			for _, peer := range peers {
				sending.Go(func() { d.net.NotifyNow(peer.ID, m) })
			}
		})
		limit := time.NewTimer(announceLimit)
		defer limit.Stop()
		select {
		case <-all:
		case <-limit.C:
		case <-ctx.Done():
		}
		then()
	})
}

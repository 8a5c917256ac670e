package worker

import (
	"context"

	"gorun/collective"
	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/worker/compat"
	"gorun/worker/member"
)

// openServices prepares what serves MPI programs and ranks of stock Horovod.
func (d *daemon) openServices() {
	cfg := compat.Config{Job: d.job, Loop: d.loop, Out: d.out, Log: d.log}
	d.mpi = compat.NewMPI(cfg, func(process, code int) { d.ranks.Abort(process, code) })
	d.horovod = compat.NewHorovod(cfg, stockDaemon{d})
}

// world is the world of the ranks.
func (d *daemon) world() member.World { return member.World{Roster: d.roster, Epoch: d.began} }

// stockDaemon is the daemon as the rendezvous of stock Horovod sees it.
type stockDaemon struct{ d *daemon }

func (s stockDaemon) World() member.World           { return s.d.world() }
func (s stockDaemon) Peers() *wire.Roster           { return s.d.peers.Load() }
func (s stockDaemon) Rejoining(msg *wire.Rejoining) { s.d.ranks.Rejoining(msg) }

// ranksDaemon is the daemon as its ranks see it.
type ranksDaemon struct{ d *daemon }

func (r ranksDaemon) World() member.World          { return r.d.world() }
func (r ranksDaemon) Host() topology.Host          { return r.d.self }
func (r ranksDaemon) Leave(epoch uint32, rank int) { r.d.engine.Leave(epoch, rank) }
func (r ranksDaemon) Pin(run func(stream int))     { r.d.mesh.Pin(run) }
func (r ranksDaemon) Deaf() bool                   { return r.d.cfg.LauncherLease.deaf() }

// goodbyes is the engine as sessions see it: a rank's goodbye goes through the daemon's loop.
type goodbyes struct {
	*collective.Engine
	d   *daemon
	ctx context.Context
}

// Leave implements session.Engine.
func (g goodbyes) Leave(process int, epoch uint32, _ int) {
	g.d.post(g.ctx, func() { g.d.ranks.Left(g.ctx, process, epoch) })
}

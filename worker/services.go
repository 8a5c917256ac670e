package worker

import (
	"context"

	"gorun/collective"
	"gorun/collective/link"
	"gorun/collective/schedule"
	"gorun/rendezvous/epoch"
	"gorun/rendezvous/pause"
	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/topology/facts"
	"gorun/worker/compat"
	"gorun/worker/member"
	"gorun/worker/pauses"
	"gorun/worker/tune"
)

// openServices prepares what serves MPI programs and ranks of stock Horovod.
func (d *daemon) openServices() {
	cfg := compat.Config{Job: d.job, Loop: d.loop, Out: d.out, Log: d.log}
	d.mpi = compat.NewMPI(cfg, func(process, code int) { d.ranks.Abort(process, code) })
	d.horovod = compat.NewHorovod(cfg, stockDaemon{d})
}

// stockDaemon is the daemon as the rendezvous of stock Horovod sees it.
type stockDaemon struct{ d *daemon }

func (s stockDaemon) World() member.World           { return s.d.member.world() }
func (s stockDaemon) Peers() *wire.Roster           { return s.d.member.peers.Load() }
func (s stockDaemon) Rejoining(msg *wire.Rejoining) { s.d.ranks.Rejoining(msg) }

// ranksDaemon is the daemon as its ranks see it.
type ranksDaemon struct{ d *daemon }

func (r ranksDaemon) World() member.World          { return r.d.member.world() }
func (r ranksDaemon) Host() topology.Host          { return r.d.machine.Host() }
func (r ranksDaemon) Leave(epoch uint32, rank int) { r.d.engine.Leave(epoch, rank) }
func (r ranksDaemon) Pin(run func(stream int))     { r.d.net.Mesh.Pin(run) }
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

// openTuning prepares what adapts the ring to the edges between hosts, and has it pause.
func (d *daemon) openTuning() {
	d.pauses = pauses.New(d.job.HostID, ring{d}, d.loop, d.log)
	d.tune = tune.New(tune.Config{Job: d.job, Loop: d.loop, Log: d.log, Daemon: tuneDaemon{d}, Links: links{d}, Pauses: d.pauses})
}

// links are the links of this host as its tuner sees them.
type links struct{ d *daemon }

func (l links) Status(peer int) (link.Status, bool) { return l.d.net.Mesh.Status(peer) }
func (l links) Measure(ctx context.Context, peer int) (schedule.Cost, error) {
	return l.d.prober.Measure(ctx, peer)
}

// tuneDaemon is the daemon as its tuner sees it.
type tuneDaemon struct{ *daemon }

func (t tuneDaemon) Members() []int                { return t.member.members() }
func (t tuneDaemon) Facts() *facts.File            { return t.machine.Facts() }
func (t tuneDaemon) Send(peer int, m wire.Message) { t.send(peer, m) }
func (t tuneDaemon) Tell(text string)              { t.tell(text) }
func (t tuneDaemon) Settled() (hosts []topology.Host, number uint32) {
	if t.member.machine.State() != epoch.Committed {
		return nil, 0
	}
	return t.member.machine.Hosts(), t.member.machine.Epoch()
}

// ring is the ring of hosts that pauses.
type ring struct{ *daemon }

func (r ring) Epoch() uint32                     { return r.member.epoch }
func (r ring) Send(peer int, m wire.Message)     { r.send(peer, m) }
func (r ring) Pause(number uint32, quiet func()) { r.engine.Pause(number, quiet) }
func (r ring) Resume(g *pause.Go)                { r.resume(g) }

// machineDaemon is the daemon as its machine sees it.
type machineDaemon struct{ d *daemon }

func (m machineDaemon) DataNIC(h topology.Host) string { return m.d.net.DataNIC(h) }
func (m machineDaemon) NetworkChanged()                { m.d.tune.ForgetOwn() }
func (m machineDaemon) Changed(ctx context.Context) {
	m.d.net.Choose()
	m.d.step(ctx, epoch.Event{Self: m.d.self()})
}

// self returns what this machine is like, for the epoch machine.
func (d *daemon) self() *topology.Host {
	host := d.machine.Host()
	return &host
}

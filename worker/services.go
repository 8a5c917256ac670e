package worker

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"gorun/collective"
	"gorun/collective/link"
	"gorun/collective/schedule"
	"gorun/rendezvous/liveness"
	"gorun/rendezvous/pause"
	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/topology/facts"
	"gorun/worker/compat"
	"gorun/worker/member"
	"gorun/worker/migrate"
	"gorun/worker/moves"
	"gorun/worker/pauses"
	"gorun/worker/session"
	"gorun/worker/tune"
)

// openServices prepares what serves MPI programs and ranks of stock Horovod.
func (d *daemon) openServices() {
	d.mpi = compat.NewMPI(d.component(), func(process, code int) { d.ranks.Exits.Abort(process, code) })
	d.horovod = compat.NewHorovod(d.component(), services{d})
}

// goodbyes is the engine as sessions see it: a rank's goodbye goes through the daemon's loop.
type goodbyes struct {
	*collective.Engine
	d   *daemon
	ctx context.Context
}

// Leave implements session.Engine.
func (g goodbyes) Leave(process int, epoch uint32, _ int) {
	g.d.post(g.ctx, func() { g.d.ranks.Worlds.Left(g.ctx, process, epoch) })
}

// openTuning prepares what adapts the ring to the edges between hosts, and has it pause.
func (d *daemon) openTuning() {
	d.pauses = pauses.New(d.job.HostID, services{d}, d.loop, d.log.Logger)
	d.tune = tune.New(tune.Config{Component: d.component(), Daemon: services{d}, Links: services{d},
		Pauses: d.pauses})
}

// openMembership prepares what forms worlds.
func (d *daemon) openMembership() {
	d.member = member.New(member.Config{Component: d.component(), Lease: d.peers.lease,
		Daemon: services{d}, Gossip: d.net, Links: services{d}, Tuner: d.tune, LinkTimeout: cmp.Or(d.cfg.linkTimeout, d.peers.timing.LinkTimeout)})
}

// openMoves prepares what acts when this machine moves.
func (d *daemon) openMoves() {
	t := d.peers.timing
	d.moves = moves.New(moves.Config{Component: d.component(), Daemon: services{d}, Machine: d.machine, Ring: d.tune,
		Pauses: d.pauses, Pulse: migrate.Pulse{Period: t.HostInterval, Late: t.PauseAfter}, State: d.cfg.State})
}

// services is the daemon as its components see it: each has an interface with what it needs of this.
type services struct{ *daemon }

// For most of them.
func (s services) World() member.View  { return s.member.World() }
func (s services) Host() topology.Host { return s.machine.Host() }

// For ranks, those of stock Horovod too.
func (s services) Rejoining(msg *wire.Rejoining) { s.ranks.Worlds.Rejoining(msg) }
func (s services) Leave(epoch uint32, rank int)  { s.engine.Leave(epoch, rank) }
func (s services) Pin(run func(stream int))      { s.net.Links().Pin(run) }
func (s services) Own() []string                 { return s.net.Own() }
func (s services) Deaf() bool                    { return s.cfg.LauncherLease.deaf() }

// For the membership.
func (s services) Prepare(w collective.EngineWorld) error { return s.engine.SetWorld(w) }
func (s services) StartRanks(ctx context.Context)         { s.ranks.Starter.Start(ctx) }
func (s services) Expect(number uint32, peers []int) {
	s.cfg.LauncherLease.note(func(l *liveness.LauncherLease) { l.World(number, peers, s.member.Lease()) })
}

// Admit implements member.Daemon.
func (s services) Admit(r *wire.Roster) error {
	if err := s.ranks.Starter.Admit(r); err != nil {
		return err
	}
	s.net.Locate(r)
	return nil
}

// SparesChanged implements member.Daemon.
func (s services) SparesChanged(ctx context.Context, r *wire.Roster) error {
	if err := s.ranks.Starter.Admit(r); err != nil {
		return err
	}
	s.ranks.Worlds.Drop(r)
	s.ranks.Starter.StartSpares(ctx)
	return nil
}

// EndWorld implements member.Daemon. What ranks have in flight fails; their processes go on, unless the next roster
// has them no more.
func (s services) EndWorld(ctx context.Context, former, next *wire.Roster) {
	s.releaseOthers(former, next)
	s.reportPeers() // the links of those that have hung up will be forgotten
	s.pauses.Step(ctx, pause.Event{World: &pause.WorldHosts{}})
	// In this order: once the links are forgotten, nothing of them touches the memory of ranks, which get it back when
	// their operations end.
	for _, p := range s.member.Others() {
		s.net.Links().Forget(p.ID)
	}
	s.engine.Abort(&collective.Error{Code: collective.CodeAborted,
		Text: fmt.Sprintf("the world of epoch %d ended: %s", former.Epoch, next.Reason)})
	s.ranks.Worlds.End(next)
}

// RosterChanged implements member.Daemon.
func (s services) RosterChanged(ctx context.Context, r *wire.Roster) {
	s.tune.Stop()
	s.peers.World(member.IDs(r), s.member.Lease())
	s.reportPeers()
	if _, ok := member.Peer(r, s.job.HostID); ok {
		s.horovod.Serve(ctx)
	}
}

// Enter implements member.Daemon.
func (s services) Enter(ctx context.Context, w wire.World) {
	s.engine.SetCost(schedule.Cost(w.Cost))
	s.tune.Begin(w)
	s.peers.Formed()
	s.reportPeers()
	s.sessions.SetWorld(s.worldOfRanks(w))
	s.out.Write(&wire.Committed{World: s.member.Current()})
	s.pauses.Step(ctx, pause.Event{World: &pause.WorldHosts{Epoch: w.Epoch, Members: w.Order}})
	if len(w.Order) > 1 && w.Order[0] == s.job.HostID {
		how := "between hosts " + s.engine.Describe()
		if s.job.Encrypt {
			how += "; links are encrypted (AES-256-GCM)"
		}
		s.component().Tell("%s", how)
	}
	s.ranks.Worlds.Enter()
	s.horovod.Seat()
	s.ranks.Starter.Start(ctx)
}

// worldOfRanks translates a world for the ranks.
func (s services) worldOfRanks(w wire.World) session.LocalWorld {
	r := s.member.Roster()
	out := session.LocalWorld{Epoch: w.Epoch, Size: r.Size, Hosts: len(w.Order), Host: s.job.Name}
	for _, r := range r.Ranks {
		out.Places = append(out.Places, session.RankPlace{Process: r.Process, Rank: r.Rank, LocalRank: r.LocalRank,
			CrossRank: r.CrossRank, CrossSize: r.CrossSize})
	}
	return out
}

// The links, for the membership and the tuner.
func (s services) Open(peers []int) error { return s.net.Links().Open(peers) }
func (s services) Connect(ctx context.Context, peers []int) error {
	return s.net.Links().Connect(ctx, peers)
}
func (s services) Reach(ctx context.Context, peers []int) error {
	return s.net.Links().Reach(ctx, peers)
}
func (s services) Status(peer int) (link.Status, bool) { return s.net.Links().Status(peer) }
func (s services) Measure(ctx context.Context, peer int) (schedule.Cost, error) {
	return s.engine.prober.Measure(ctx, peer)
}

// For the tuner.
func (s services) Members() []int           { return s.member.Members() }
func (s services) Facts() *facts.File       { return s.machine.Facts() }
func (s services) Settled() []topology.Host { return s.member.Settled() }

// For moves.
func (s services) Announce(ctx context.Context, msg wire.Message, then func()) {
	s.announce(ctx, msg, then)
}

func (s services) PauseRDMA(ctx context.Context, then func()) { s.net.PauseRDMA(ctx, then) }
func (s services) ResumeRDMA()                                { s.net.ResumeRDMA() }

// Rejoin implements moves.Daemon.
func (s services) Rejoin(ctx context.Context) (greet func()) {
	if s.member.Ending() || s.member.Roster() == nil {
		return nil
	}
	var addrs []string
	for _, p := range s.member.Others() {
		s.net.Links().Kick(p.ID)
		addrs = append(addrs, p.Gossip)
	}
	s.member.AskAgain(ctx)
	if !s.member.Connected() { // no peer has met this host: it greets the others when the world is formed
		addrs = nil
	}
	return func() {
		if len(addrs) == 0 {
			return
		}
		limit, cancel := context.WithTimeout(ctx, announceLimit)
		defer cancel()
		if err := s.net.Greet(limit, addrs[:min(len(addrs), member.MaxGreeted)]); err != nil {
			s.log.Debug("gossip: not joined again", "error", err)
		}
	}
}

// PeerMoves implements moves.Daemon.
func (s services) PeerMoves(peer int) {
	now := time.Now()
	s.peers.Moves(now, peer, now.Add(s.peers.timing.MoveLimit))
}

// PeerIsBack implements moves.Daemon.
func (s services) PeerIsBack(ctx context.Context, peer int) {
	s.peers.Moves(time.Now(), peer, time.Time{})
	s.net.Links().Kick(peer)
	s.member.AskAgain(ctx)
}

// For pauses of the ring.
func (s services) Epoch() uint32                     { return s.member.World().Epoch }
func (s services) Send(peer int, m wire.Message)     { s.net.Notify(peer, m) }
func (s services) Pause(number uint32, quiet func()) { s.engine.Pause(number, quiet) }
func (s services) Resume(g *pause.Go)                { s.resume(g) }

// For the machine.
func (s services) DataNIC(h topology.Host) string { return s.net.DataNIC(h) }
func (s services) DataRDMA() string               { return s.net.DataRDMA() }
func (s services) NetworkChanged()                { s.tune.ForgetOwn() }
func (s services) Changed(ctx context.Context) {
	s.net.Choose()
	s.tune.HostsChanged()
	s.member.SelfChanged(ctx)
}

// For the network.
func (s services) Peers() *wire.Roster      { return s.member.Peers() }
func (s services) Lost(peer int, err error) { s.lost(peer, err) }

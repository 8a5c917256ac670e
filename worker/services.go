package worker

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"gorun/collective"
	"gorun/collective/link"
	"gorun/collective/schedule"
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
	cfg := compat.Config{Job: d.job, Loop: d.loop, Out: d.out, Log: d.log.Logger}
	d.mpi = compat.NewMPI(cfg, func(process, code int) { d.ranks.Exits.Abort(process, code) })
	d.horovod = compat.NewHorovod(cfg, stockDaemon{d})
}

// stockDaemon is the daemon as the rendezvous of stock Horovod sees it.
type stockDaemon struct{ d *daemon }

func (s stockDaemon) World() member.View            { return s.d.member.World() }
func (s stockDaemon) Rejoining(msg *wire.Rejoining) { s.d.ranks.Worlds.Rejoining(msg) }

// ranksDaemon is the daemon as its ranks see it.
type ranksDaemon struct{ d *daemon }

func (r ranksDaemon) World() member.View           { return r.d.member.World() }
func (r ranksDaemon) Host() topology.Host          { return r.d.machine.Host() }
func (r ranksDaemon) Leave(epoch uint32, rank int) { r.d.engine.Leave(epoch, rank) }
func (r ranksDaemon) Pin(run func(stream int))     { r.d.net.Links().Pin(run) }
func (r ranksDaemon) Own() []string                { return r.d.net.Own() }
func (r ranksDaemon) Deaf() bool                   { return r.d.cfg.LauncherLease.deaf() }

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
	d.pauses = pauses.New(d.job.HostID, ring{d}, d.loop, d.log.Logger)
	d.tune = tune.New(tune.Config{Job: d.job, Loop: d.loop, Log: d.log.Logger, Daemon: tuneDaemon{d}, Links: links{d},
		Pauses: d.pauses})
}

// openMembership prepares what forms worlds.
func (d *daemon) openMembership() {
	d.member = member.New(member.Config{Job: d.job, Loop: d.loop, Out: d.out, Log: d.log.Logger, Lease: d.peers.lease,
		Daemon: memberDaemon{d}, Gossip: d.net, Links: links{d}, Tuner: d.tune, LinkTimeout: cmp.Or(d.cfg.linkTimeout, d.peers.timing.LinkTimeout)})
}

// memberDaemon is the daemon as its membership sees it.
type memberDaemon struct{ *daemon }

func (m memberDaemon) Host() topology.Host                    { return m.machine.Host() }
func (m memberDaemon) Prepare(w collective.EngineWorld) error { return m.engine.SetWorld(w) }
func (m memberDaemon) StartRanks(ctx context.Context)         { m.ranks.Starter.Start(ctx) }
func (m memberDaemon) Expect(number uint32, peers []int) {
	m.cfg.LauncherLease.world(number, peers, m.member.Lease())
}

// Admit implements member.Daemon.
func (m memberDaemon) Admit(r *wire.Roster) error {
	if err := m.ranks.Starter.Admit(r); err != nil {
		return err
	}
	m.net.Locate(r)
	return nil
}

// SparesChanged implements member.Daemon.
func (m memberDaemon) SparesChanged(ctx context.Context, r *wire.Roster) error {
	if err := m.ranks.Starter.Admit(r); err != nil {
		return err
	}
	m.ranks.Worlds.Drop(r)
	m.ranks.Starter.StartSpares(ctx)
	return nil
}

// EndWorld implements member.Daemon. What ranks have in flight fails; their processes go on, unless the next roster
// has them no more.
func (m memberDaemon) EndWorld(ctx context.Context, former, next *wire.Roster) {
	m.releaseOthers(former, next)
	m.reportPeers() // the links of those that have hung up will be forgotten
	m.pauses.Step(ctx, pause.Event{World: &pause.WorldHosts{}})
	// In this order: once the links are forgotten, nothing of them touches the memory of ranks, which get it back when
	// their operations end.
	for _, p := range m.member.Others() {
		m.net.Links().Forget(p.ID)
	}
	m.engine.Abort(&collective.Error{Code: collective.CodeAborted,
		Text: fmt.Sprintf("the world of epoch %d ended: %s", former.Epoch, next.Reason)})
	m.ranks.Worlds.End(next)
}

// RosterChanged implements member.Daemon.
func (m memberDaemon) RosterChanged(ctx context.Context, r *wire.Roster) {
	m.tune.Stop()
	m.peers.World(member.IDs(r), m.member.Lease())
	m.reportPeers()
	if _, ok := member.Peer(r, m.job.HostID); ok {
		m.horovod.Serve(ctx)
	}
}

// Enter implements member.Daemon.
func (m memberDaemon) Enter(ctx context.Context, w wire.World) {
	m.engine.SetCost(schedule.Cost(w.Cost))
	m.tune.Begin(w)
	m.peers.Formed()
	m.reportPeers()
	m.sessions.SetWorld(m.worldOfRanks(w))
	m.out.Write(&wire.Committed{World: m.member.Current()})
	m.pauses.Step(ctx, pause.Event{World: &pause.WorldHosts{Epoch: w.Epoch, Members: w.Order}})
	if len(w.Order) > 1 && w.Order[0] == m.job.HostID {
		how := "between hosts " + m.engine.Describe()
		if m.job.Encrypt {
			how += "; links are encrypted (AES-256-GCM)"
		}
		m.tell(how)
	}
	m.ranks.Worlds.Enter()
	m.horovod.Seat()
	m.ranks.Starter.Start(ctx)
}

// worldOfRanks translates a world for the ranks.
func (m memberDaemon) worldOfRanks(w wire.World) session.LocalWorld {
	r := m.member.Roster()
	out := session.LocalWorld{Epoch: w.Epoch, Size: r.Size, Hosts: len(w.Order), Host: m.job.Name}
	for _, r := range r.Ranks {
		out.Places = append(out.Places, session.RankPlace{Process: r.Process, Rank: r.Rank, LocalRank: r.LocalRank,
			CrossRank: r.CrossRank, CrossSize: r.CrossSize})
	}
	return out
}

// links are the links of this host as its components see them.
type links struct{ d *daemon }

func (l links) Open(peers []int) error { return l.d.net.Links().Open(peers) }
func (l links) Connect(ctx context.Context, peers []int) error {
	return l.d.net.Links().Connect(ctx, peers)
}
func (l links) Reach(ctx context.Context, peers []int) error {
	return l.d.net.Links().Reach(ctx, peers)
}
func (l links) Status(peer int) (link.Status, bool) { return l.d.net.Links().Status(peer) }
func (l links) Measure(ctx context.Context, peer int) (schedule.Cost, error) {
	return l.d.engine.prober.Measure(ctx, peer)
}

// tuneDaemon is the daemon as its tuner sees it.
type tuneDaemon struct{ *daemon }

func (t tuneDaemon) Members() []int           { return t.member.Members() }
func (t tuneDaemon) Facts() *facts.File       { return t.machine.Facts() }
func (t tuneDaemon) Tell(text string)         { t.tell(text) }
func (t tuneDaemon) Settled() []topology.Host { return t.member.Settled() }

// openMoves prepares what acts when this machine moves.
func (d *daemon) openMoves() {
	t := d.peers.timing
	d.moves = moves.New(moves.Config{Job: d.job, Loop: d.loop, Daemon: movesDaemon{d}, Machine: d.machine, Ring: d.tune,
		Pauses: d.pauses, Pulse: migrate.Pulse{Period: t.HostInterval, Late: t.PauseAfter}, State: d.cfg.State})
}

// movesDaemon is the daemon as its moves see it.
type movesDaemon struct{ *daemon }

func (m movesDaemon) Tell(text string) { m.tell(text) }
func (m movesDaemon) Announce(ctx context.Context, msg wire.Message, then func()) {
	m.announce(ctx, msg, then)
}

func (m movesDaemon) PauseRDMA(ctx context.Context, then func()) { m.net.PauseRDMA(ctx, then) }
func (m movesDaemon) ResumeRDMA()                                { m.net.ResumeRDMA() }

// Rejoin implements moves.Daemon.
func (m movesDaemon) Rejoin(ctx context.Context) (greet func()) {
	if m.member.Ending() || m.member.Roster() == nil {
		return nil
	}
	var addrs []string
	for _, p := range m.member.Others() {
		m.net.Links().Kick(p.ID)
		addrs = append(addrs, p.Gossip)
	}
	m.member.AskAgain(ctx)
	if !m.member.Connected() { // no peer has met this host: it greets the others when the world is formed
		addrs = nil
	}
	return func() {
		if len(addrs) == 0 {
			return
		}
		limit, cancel := context.WithTimeout(ctx, announceLimit)
		defer cancel()
		if err := m.net.Greet(limit, addrs[:min(len(addrs), member.MaxGreeted)]); err != nil {
			m.log.Debug("gossip: not joined again", "error", err)
		}
	}
}

// PeerMoves implements moves.Daemon.
func (m movesDaemon) PeerMoves(peer int) {
	now := time.Now()
	m.peers.Moves(now, peer, now.Add(m.peers.timing.MoveLimit))
}

// PeerIsBack implements moves.Daemon.
func (m movesDaemon) PeerIsBack(ctx context.Context, peer int) {
	m.peers.Moves(time.Now(), peer, time.Time{})
	m.net.Links().Kick(peer)
	m.member.AskAgain(ctx)
}

// ring is the ring of hosts that pauses.
type ring struct{ *daemon }

func (r ring) Epoch() uint32                     { return r.member.World().Epoch }
func (r ring) Send(peer int, m wire.Message)     { r.net.Notify(peer, m) }
func (r ring) Pause(number uint32, quiet func()) { r.engine.Pause(number, quiet) }
func (r ring) Resume(g *pause.Go)                { r.resume(g) }

// machineDaemon is the daemon as its machine sees it.
type machineDaemon struct{ d *daemon }

func (m machineDaemon) DataNIC(h topology.Host) string { return m.d.net.DataNIC(h) }
func (m machineDaemon) DataRDMA() string               { return m.d.net.DataRDMA() }
func (m machineDaemon) NetworkChanged()                { m.d.tune.ForgetOwn() }
func (m machineDaemon) Changed(ctx context.Context) {
	m.d.net.Choose()
	m.d.tune.HostsChanged()
	m.d.member.SelfChanged(ctx)
}

// networkDaemon is the daemon as its network sees it.
type networkDaemon struct{ d *daemon }

func (n networkDaemon) Host() topology.Host      { return n.d.machine.Host() }
func (n networkDaemon) Peers() *wire.Roster      { return n.d.member.Peers() }
func (n networkDaemon) Lost(peer int, err error) { n.d.lost(peer, err) }

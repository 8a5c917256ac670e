package member

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"gorun/collective"
	"gorun/collective/link"
	"gorun/rendezvous/epoch"
	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/worker/loop"
)

// Daemon is what a membership needs from its daemon, which acts when a roster comes and when a world begins or ends.
type Daemon interface {
	// Host returns what this machine is like.
	Host() topology.Host
	// Admit prepares for the hosts and processes of a roster.
	Admit(r *wire.Roster) error
	// EndWorld ends what uses the world of the former roster, because the next one follows.
	EndWorld(ctx context.Context, former, next *wire.Roster)
	// RosterChanged takes note of the roster that Roster returns from now on.
	RosterChanged(ctx context.Context, r *wire.Roster)
	// SparesChanged starts and ends processes of this host as the roster lists them now.
	SparesChanged(ctx context.Context, r *wire.Roster) error
	// Expect takes note of the peers that this host forms a world with, nil if it is not in the roster.
	Expect(epoch uint32, peers []int)
	// Prepare has the engine listen to the links of a proposed world.
	Prepare(w collective.EngineWorld) error
	// Enter lets the ranks into the world that has begun, which Current returns.
	Enter(ctx context.Context, w wire.World)
	// StartRanks starts the processes of the roster that do not run yet.
	StartRanks(ctx context.Context)
}

// Gossip is how hosts meet.
type Gossip interface {
	// Meet begins to gossip and to take links.
	Meet(ctx context.Context) error
	// Greet makes this host known to the gossip of others.
	Greet(ctx context.Context, addrs []string) error
	// Notify sends a message to a peer without waiting. It may get lost.
	Notify(peer int, m wire.Message)
}

// Links are the links of this host.
type Links interface {
	linker
	// Status returns the state of the link to a peer, false if there is none.
	Status(peer int) (link.Status, bool)
}

// Tuner finds the ring of a world and measures what its operations cost.
type Tuner interface {
	Order(ctx context.Context, q epoch.Question, found func(epoch.Ordered))
	Probe(ctx context.Context, order []int) wire.Cost
}

// Config is what a membership is made from.
type Config struct {
	loop.Component
	Lease  time.Duration // how long a host may be silent, unless the roster says otherwise
	Daemon Daemon
	Gossip Gossip
	Links  Links
	Tuner  Tuner

	LinkTimeout time.Duration // of an attempt to reach others, until this host reports that it does not reach them
}

// Membership is who is in the world of this host's job. The daemon's loop alone calls its methods, but for Peers.
type Membership struct {
	cfg Config
	job *wire.Job

	roster    *wire.Roster // that the launcher sent last: of the present world, or of the one that is formed
	coming    *wire.Peers  // of the roster that comes next
	peers     atomic.Pointer[wire.Roster]
	connected bool // gossip and links run
	requested bool // the launcher knows that a rank waits for the world
	ending    bool // no other world begins

	machine  *epoch.Machine
	repeat   *time.Ticker  // of what the machine has no answer to
	pace     time.Duration // between its ticks
	epoch    uint32        // of the world that the ranks are in, 0 for none
	current  wire.World    // that world, as the launcher heard of it
	life     *life         // of the world that is prepared or has begun, nil for none
	needed   []int         // peers that the world in preparation needs links to
	unlinked []int         // peers that could not be linked since the world began
}

// New returns a membership without a roster.
func New(cfg Config) *Membership {
	return &Membership{cfg: cfg, job: cfg.Job, machine: epoch.New(cfg.Job.HostID),
		repeat: time.NewTicker(time.Hour), pace: time.Hour}
}

// Close ends what makes links, and returns when nothing of it runs.
func (m *Membership) Close() {
	m.repeat.Stop()
	m.life.stop()
}

// End keeps other worlds from beginning: the ranks are about to end.
func (m *Membership) End() { m.ending = true }

// Ending reports whether End was called.
func (m *Membership) Ending() bool { return m.ending }

// Roster returns the latest roster, nil before the first.
func (m *Membership) Roster() *wire.Roster { return m.roster }

// Peers returns the latest roster, nil before the first. Any goroutine may call it.
func (m *Membership) Peers() *wire.Roster { return m.peers.Load() }

// World returns the world of the ranks.
func (m *Membership) World() View { return View{Roster: m.roster, Epoch: m.epoch} }

// Current returns the world that the ranks are in, as the launcher is to hear of it.
func (m *Membership) Current() wire.World { return m.current }

// Settled returns what the hosts of a world that has begun are like, in the order of their ids; none while a world is
// formed.
func (m *Membership) Settled() []topology.Host {
	if m.machine.State() != epoch.Committed {
		return nil
	}
	return m.machine.Hosts()
}

// Members returns the hosts of the latest roster, ascending; none before the first.
func (m *Membership) Members() []int {
	if m.roster == nil {
		return nil
	}
	return slices.Sorted(slices.Values(IDs(m.roster)))
}

// Others returns the other hosts of the latest roster, none before the first.
func (m *Membership) Others() []wire.Peer {
	if m.roster == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(m.roster.Peers), func(p wire.Peer) bool { return p.ID == m.job.HostID })
}

// Connected reports whether this host has begun to meet others.
func (m *Membership) Connected() bool { return m.connected }

// Lease returns how long a host may be silent.
func (m *Membership) Lease() time.Duration {
	if m.roster != nil && m.roster.LeaseMS > 0 {
		return time.Duration(m.roster.LeaseMS) * time.Millisecond
	}
	return m.cfg.Lease
}

// Missing returns the peers that this host waits for: to form a world, or to reach them once a large world has begun.
// Only an elastic job has another world to go on in without them.
func (m *Membership) Missing() []int {
	if m.ending || m.roster == nil || !m.job.Elastic {
		return nil
	}
	missing := map[int]bool{}
	for _, peer := range m.machine.Missing() {
		missing[peer] = true
	}
	linked := m.unlinked
	if m.machine.State() == epoch.Preparing {
		linked = append(slices.Clone(linked), m.needed...)
	}
	for _, peer := range linked {
		if s, _ := m.cfg.Links.Status(peer); s.Streams == 0 {
			missing[peer] = true
		}
	}
	return slices.Sorted(maps.Keys(missing))
}

// Relocate has locate put into the roster what is known of where its hosts are.
func (m *Membership) Relocate(locate func(*wire.Roster)) {
	r := *m.roster
	locate(&r)
	m.roster = &r
	m.peers.Store(&r)
}

// Package ranks starts the processes of a host's ranks, watches them, and ends them.
//
// Ranks knows each process of this host by its number in the job: that it runs, how it ended, that it waits for
// another world. A process is started with the environment that package rankenv computes (facts.go collects what that
// depends on), bound to CPUs (bind.go) and given its GPU (gpus.go). Its end is reported to the launcher first, then
// to the engine, which counts on it no longer (end.go). The daemon's loop alone calls the methods, but for Feed.
package ranks

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"syscall"
	"time"

	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/worker/compat"
	"gorun/worker/counters"
	"gorun/worker/loop"
	"gorun/worker/member"
	"gorun/worker/proc"
)

// Daemon is what ranks need from their daemon.
type Daemon interface {
	World() member.View
	// Host returns what this machine is like.
	Host() topology.Host
	// Leave has the engine no longer count on a rank in the world of an epoch.
	Leave(epoch uint32, rank int)
	// Pin calls run on the thread of each stream between hosts.
	Pin(run func(stream int))
	// Deaf reports whether this host does not hear its launcher.
	Deaf() bool
}

// Sessions is what ranks need from the sessions of their processes.
type Sessions interface {
	// Expect admits a process that shows the token.
	Expect(process int, token [32]byte)
	// Met reports whether a process has met other ranks.
	Met(process int) bool
	// PID returns the id of the process that has a session now, 0 if none has.
	PID(process int) int
}

// Config is what ranks are made from.
type Config struct {
	Job    *wire.Job
	Loop   *loop.Loop
	Out    *wire.Writer // to the launcher
	Log    *slog.Logger
	Exe    string   // gorun, which Python imports its binding from
	Env    []string // of the daemon
	Cgroup *proc.Cgroup

	Daemon   Daemon
	Sessions Sessions
	Socket   string // of the sessions
	MPI      *compat.MPI
	Horovod  *compat.Horovod
	NICs     []string // that the user chose on this host, nil for none
	Describe func()   // shows users of -v how this host is reached, before ranks start

	ShutdownGrace time.Duration // in place of shutdownGrace, for tests; 0 for that
}

// Ranks are the processes of this host's ranks.
type Ranks struct {
	cfg        Config
	job        *wire.Job
	group      *proc.Group
	ports      ports
	binding    binding
	library    *library // nil if JAX's own programs do not get it
	input      chan *wire.Stdin
	processes  map[int]*process
	committed  uint32 // the last epoch in which a process here committed its state
	stopping   bool
	inspecting bool // a goroutine asks processes for their stacks
	stops      int  // orders to stop that are being carried out
}

// process is one process, which has its number in the job for good.
type process struct {
	token     [32]byte
	started   bool // it was started, or was to be
	pid       int  // 0 if it could not be started
	running   bool
	exit      *wire.Exited    // nil while it has not ended
	rejoining *wire.Rejoining // why it waits, or waited last, for another world
	leaving   *time.Timer     // runs since its goodbye, nil before
	gone      bool            // the engine no longer counts on it in the present world
	aborted   int             // the exit code that it gave MPI_Abort, 0 if it did not call it
	dropped   bool            // it was ended because the roster has it no more
	mpi       singleton
	counters  *counters.Page   // nil if it has none
	stacks    *counters.Stacks // nil if it has none
}

// Open prepares for the ranks of a host: it reserves their ports, and becomes their processes' parent.
func Open(cfg Config) (*Ranks, error) {
	r := &Ranks{cfg: cfg, job: cfg.Job, input: make(chan *wire.Stdin, wire.StdinWindow), processes: map[int]*process{}}
	var err error
	if r.group, err = proc.Open(proc.Config{Job: cfg.Job.ID, Cgroup: cfg.Cgroup}); err != nil {
		return nil, err
	}
	if err := r.ports.reserve(cfg.Job); err != nil {
		r.Close()
		return nil, err
	}
	if cfg.Job.JAX != "" {
		if r.library, err = openLibrary(cfg.Exe); err != nil {
			r.Close()
			return nil, fmt.Errorf("--jax-engine: %w", err)
		}
	}
	return r, nil
}

// of returns what is known of a process.
func (r *Ranks) of(number int) *process {
	p := r.processes[number]
	if p == nil {
		p = &process{}
		r.processes[number] = p
	}
	return p
}

// numbers returns the numbers of all processes that are known, ascending.
func (r *Ranks) numbers() []int { return slices.Sorted(maps.Keys(r.processes)) }

// running returns the numbers of the processes that run, ascending.
func (r *Ranks) running() []int {
	return slices.DeleteFunc(r.numbers(), func(number int) bool { return !r.processes[number].running })
}

// Admit has the sessions expect the processes of a roster.
func (r *Ranks) Admit(roster *wire.Roster) error {
	for _, rank := range roster.Ranks {
		p := r.of(rank.Process)
		if p.token != [32]byte{} {
			continue
		}
		if _, err := rand.Read(p.token[:]); err != nil {
			return fmt.Errorf("make rank token: %w", err)
		}
		r.cfg.Sessions.Expect(rank.Process, p.token)
	}
	return nil
}

// Enter takes processes out of the world that has begun if they ended while it was formed.
func (r *Ranks) Enter() {
	for _, rank := range r.cfg.Daemon.World().Roster.Ranks {
		if p := r.of(rank.Process); p.started && !p.running {
			r.leave(rank.Process)
		}
	}
}

// EndWorld has processes be in no world. Processes that the next roster lacks are ended.
func (r *Ranks) EndWorld(next *wire.Roster) {
	for number, p := range r.processes {
		if p.leaving != nil {
			p.leaving.Stop()
		}
		p.leaving, p.gone = nil, false
		if p.running && !slices.ContainsFunc(next.Ranks, func(rank wire.Rank) bool { return rank.Process == number }) {
			p.dropped = true
			r.group.Kill(number)
		}
	}
}

// Abort ends a process that called MPI_Abort and now waits to be killed. It counts as an exit with its code.
func (r *Ranks) Abort(number, code int) {
	if p := r.of(number); p.running && p.aborted == 0 {
		p.aborted = code
		r.group.Kill(number)
	}
}

// Signal sends a signal to all processes.
func (r *Ranks) Signal(number int) { r.group.Signal(syscall.Signal(number)) }

// Stop ends all ranks; it may be called again with less grace.
func (r *Ranks) Stop(ctx context.Context, grace time.Duration) { r.stopBy(ctx, r.group.Stop, grace) }

// Interrupt is Stop for ranks that get INT first.
func (r *Ranks) Interrupt(ctx context.Context, grace time.Duration) {
	r.stopBy(ctx, r.group.Interrupt, grace)
}

// KillAfter ends all ranks at once when first has returned.
func (r *Ranks) KillAfter(ctx context.Context, first func()) {
	r.stopBy(ctx, func(ctx context.Context, grace time.Duration) error {
		first()
		return r.group.Stop(ctx, grace)
	}, 0)
}

func (r *Ranks) stopBy(ctx context.Context, end func(context.Context, time.Duration) error, grace time.Duration) {
	r.stopping = true
	r.stops++
	ctx = context.WithoutCancel(ctx)
	r.cfg.Loop.Go(func() {
		err := end(ctx, grace)
		r.cfg.Loop.Post(ctx, func() {
			r.stops--
			if err != nil {
				r.cfg.Log.Warn("stop ranks", "error", err)
			}
		})
	})
}

// Over reports whether all ranks were to end and have.
func (r *Ranks) Over() bool { return r.stopping && r.stops == 0 && len(r.running()) == 0 }

// Close ends what still runs, and returns when nothing of the ranks is left on the host.
func (r *Ranks) Close() error {
	for _, p := range r.processes {
		if p.leaving != nil {
			p.leaving.Stop()
		}
		if p.counters != nil {
			p.counters.Close()
		}
		if p.stacks != nil {
			p.stacks.Close()
		}
	}
	r.ports.release()
	r.library.close()
	return r.group.Close()
}

// Package ranks starts the processes of a host's ranks, watches them, and ends them.
//
// Each process of this host has a number in the job, by which processes.go knows it: that it runs, how it ended. Each
// of the other types does one thing with processes and keeps what only that needs:
//
//   - Starter starts them, with the environment that package rankenv computes (start.go; facts.go collects what that
//     depends on), bound to CPUs (bind.go) and given a GPU (gpus.go).
//   - Input passes on what the user types (input.go).
//   - Worlds takes them out of a world that they have left, or that has ended (world.go).
//   - Exits takes their ends: it reports each to the launcher, then to the engine, which counts on it no longer (exit.go).
//   - Stops ends all of them (stop.go).
//   - Monitor describes what they do (monitor.go, counters.go).
//
// The daemon's loop alone calls their methods, except for Input.Feed.
package ranks

import (
	"time"

	"gorun/rendezvous/wire"
	"gorun/topology"
	"gorun/worker/compat"
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
	// Own returns the addresses at which other hosts reach this one, best first.
	Own() []string
	// Deaf reports whether this host does not hear its launcher.
	Deaf() bool
}

// Sessions is what ranks need from the sessions of their processes.
type Sessions interface {
	// Expect admits a process that shows the token.
	Expect(process int, token [32]byte)
	// Met reports whether a process has met other ranks.
	Met(process int) bool
	// Arena returns the bytes of shared memory that a process has for its tensors.
	Arena(process int) int64
	// PID returns the id of the process that has a session now, 0 if none has.
	PID(process int) int
}

// Config is what ranks are made from.
type Config struct {
	loop.Component
	Exe    string   // gorun, which Python imports its binding from
	Env    []string // of the daemon
	Tree   string   // where the job's tree is on this host
	Python string   // where its environment of Python is, "" for none

	Daemon   Daemon
	Sessions Sessions
	Socket   string // of the sessions
	MPI      *compat.MPI
	Horovod  *compat.Horovod
	NICs     []string // that the user chose on this host, nil for none
	Describe func()   // shows users of -v how this host is reached, before ranks start

	ShutdownGrace time.Duration // in place of shutdownGrace, for tests; 0 for that
}

// Ranks are the processes of this host's ranks, by what can be done with them.
type Ranks struct {
	Starter *Starter
	Input   *Input
	Worlds  *Worlds
	Exits   *Exits
	Stops   *Stops
	Monitor *Monitor

	group *proc.Group
}

// Open prepares for the ranks of a host: it reserves their ports, and becomes their processes' parent.
func Open(cfg Config) (*Ranks, error) {
	group, err := proc.Open(proc.Config{Job: cfg.Job.ID})
	if err != nil {
		return nil, err
	}
	all, pages := processes{}, gauges{}
	singletons := &singletons{Component: cfg.Component, mpi: cfg.MPI, met: cfg.Sessions.Met, kill: group.Kill, processes: all,
		found: map[int]singleton{}}
	r := &Ranks{group: group}
	r.Starter = &Starter{cfg: cfg, group: group, processes: all, gauges: pages, singletons: singletons,
		cpus: cpus{Component: cfg.Component, nics: cfg.NICs, daemon: cfg.Daemon}}
	r.Input = &Input{readers: readersOf(cfg.Job), group: group, out: cfg.Out, typed: make(chan *wire.Stdin, wire.StdinWindow)}
	r.Worlds = &Worlds{Component: cfg.Component, daemon: cfg.Daemon, kill: group.Kill, processes: all, departures: map[int]*departure{}}
	r.Stops = &Stops{Component: cfg.Component, group: group, processes: all}
	r.Exits = &Exits{cfg: cfg, group: group, processes: all, worlds: r.Worlds, stops: r.Stops, singletons: singletons,
		gauges: pages}
	r.Monitor = &Monitor{Component: cfg.Component, world: cfg.Daemon.World, session: cfg.Sessions.PID, arena: cfg.Sessions.Arena,
		processes: all, gauges: pages, worlds: r.Worlds}
	if err := r.Starter.open(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Close ends what still runs, and returns when nothing of the ranks is left on the host.
func (r *Ranks) Close() error {
	r.Worlds.close()
	r.Starter.close()
	return r.group.Close()
}

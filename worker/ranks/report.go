package ranks

import (
	"context"
	"fmt"
	"sync"

	"gorun/rendezvous/wire"
	"gorun/worker/counters"
	"gorun/worker/proc"
)

// Inspect reports to the launcher what the processes of this host's ranks do, with their stacks if it wants those.
func (r *Ranks) Inspect(ctx context.Context, stacks bool) {
	msg := &wire.Inspected{}
	var pipes []*counters.Stacks
	var signals []int
	for _, number := range r.running() {
		p, pid := r.of(number), r.pid(number)
		state := wire.RankState{Process: number, PID: pid, State: fmt.Sprintf("%s (pid %d)", proc.Describe(pid), pid), Split: r.split(number)}
		msg.Ranks = append(msg.Ranks, state)
		signal := 0
		if stacks && p.stacks != nil && p.counters != nil && pid == r.cfg.Sessions.PID(number) {
			signal = p.counters.Read().Signal
		}
		pipes, signals = append(pipes, p.stacks), append(signals, signal)
	}
	if !stacks || r.inspecting {
		r.cfg.Out.Write(msg)
		return
	}
	r.inspecting = true // as one goroutine at a time reads the pipes
	r.cfg.Loop.Go(func() {
		defer r.cfg.Loop.Post(ctx, func() { r.inspecting = false })
		var all sync.WaitGroup
		for i := range msg.Ranks {
			if signals[i] != 0 {
				all.Go(func() { msg.Ranks[i].Stack = pipes[i].Ask(msg.Ranks[i].PID, signals[i]) })
			}
		}
		all.Wait()
		r.cfg.Out.Write(msg)
	})
}

// Usage reports to the launcher what the ranks of this host use, and what its links have carried.
func (r *Ranks) Usage(links wire.Links) {
	var pids []int
	for _, number := range r.running() {
		pids = append(pids, r.of(number).pid)
	}
	used, err := proc.Used(pids)
	if err != nil {
		r.cfg.Log.Warn("read usage", "err", err)
	}
	msg := &wire.Usage{Links: links, Epoch: r.cfg.Daemon.World().Epoch}
	for _, number := range r.running() {
		pid := r.of(number).pid
		u := used[pid]
		msg.Ranks = append(msg.Ranks, wire.RankUsage{Rank: number, CPUMS: u.CPU.Milliseconds(), RSS: u.RSS,
			Processes: u.Processes, State: proc.Describe(pid), Split: r.split(number)})
	}
	r.cfg.Out.Write(msg)
}

// Account repeats, for a launcher that has taken over, which processes were started, how some ended, and that state was
// committed here.
func (r *Ranks) Account() {
	for _, number := range r.numbers() {
		if pid := r.of(number).pid; pid != 0 {
			r.cfg.Out.Write(&wire.Started{Process: number, PID: pid})
		}
	}
	for _, number := range r.numbers() {
		if exit := r.of(number).exit; exit != nil {
			r.cfg.Out.Write(exit)
		}
	}
	if r.committed > 0 {
		r.cfg.Out.Write(&wire.StateKept{Epoch: r.committed})
	}
}

// AccountWaiting repeats which processes wait for another world.
func (r *Ranks) AccountWaiting() {
	for _, number := range r.running() {
		if msg := r.of(number).rejoining; msg != nil {
			r.cfg.Out.Write(msg)
		}
	}
}

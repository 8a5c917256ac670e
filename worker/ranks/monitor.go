package ranks

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"gorun/rendezvous/wire"
	"gorun/worker/counters"
	"gorun/worker/loop"
	"gorun/worker/member"
	"gorun/worker/proc"
	"gorun/worker/signs"
	"gorun/worker/stacks"
)

// Monitor describes processes to the launcher.
type Monitor struct {
	loop.Component
	world     func() member.View
	session   func(process int) (pid int) // 0 if it has none
	arena     func(process int) (bytes int64)
	processes processes
	gauges    gauges
	worlds    *Worlds
	asking    bool // a goroutine asks processes for their stacks
}

// pid returns the id of the process that speaks for a rank: the one with the session, or else the one that was started.
func (m *Monitor) pid(number int) int { return cmp.Or(m.session(number), m.processes.of(number).pid) }

// inspectTime is how long processes are looked at, before py-spy looks at some for two seconds at most: the launcher waits
// for four.
const inspectTime = 500 * time.Millisecond

// maxNative bounds the native stacks of a host's ranks in a message, and maxNativeStack what one rank has in it.
const (
	maxNative      = 4 << 20
	maxNativeStack = 64 << 10
)

// Inspect finds out what the processes of this host's ranks do, with their stacks and what keeps them if how says so, and
// passes it to then, on the loop's goroutine.
func (m *Monitor) Inspect(ctx context.Context, how *wire.Inspect, then func(*wire.Inspected)) {
	msg := &wire.Inspected{}
	var pipes []*counters.Stacks
	var counts []counters.Counts
	for _, number := range m.processes.running() {
		g, pid := m.gauges[number], m.pid(number)
		msg.Ranks = append(msg.Ranks, wire.RankState{Process: number, PID: pid,
			State: fmt.Sprintf("%s (pid %d)", proc.Describe(pid), pid), Split: m.split(number)})
		var c counters.Counts
		if how.Stacks && g.stacks != nil && g.page != nil && pid == m.session(number) {
			c = g.page.Read()
		}
		pipes, counts = append(pipes, g.stacks), append(counts, c)
	}
	if !how.Stacks || m.asking {
		then(msg)
		return
	}
	m.asking = true // as one goroutine at a time reads the pipes
	m.Loop.Go(func() {
		var pids []int
		for _, rank := range msg.Ranks {
			pids = append(pids, rank.PID)
		}
		look, end := signs.Begin(pids), time.NewTimer(inspectTime)
		defer end.Stop()
		var all sync.WaitGroup
		for i := range msg.Ranks {
			msg.Ranks[i].Kernel = stacks.Kernel(msg.Ranks[i].PID)
			if pipes[i] != nil {
				all.Go(func() { msg.Ranks[i].Stack = pipes[i].Ask(msg.Ranks[i].PID, counts[i]) })
			}
		}
		all.Wait()
		select {
		case <-end.C:
		case <-ctx.Done():
		}
		seen := look.End()
		for i := range msg.Ranks {
			msg.Ranks[i].Signs = seen[msg.Ranks[i].PID]
		}
		spyOut(ctx, msg.Ranks)
		if how.Native {
			traceOut(ctx, msg.Ranks)
		}
		m.Loop.Post(ctx, func() {
			m.asking = false
			then(msg)
		})
	})
}

// spyOut fills in the stacks that ranks have not written. Each process is a rank's own: it was started here, or knows the
// token of one that was.
func spyOut(ctx context.Context, ranks []wire.RankState) {
	var pids []int
	for _, rank := range ranks {
		if rank.Stack == "" {
			pids = append(pids, rank.PID)
		}
	}
	found := stacks.Python(ctx, pids)
	for i := range ranks {
		ranks[i].Stack = cmp.Or(ranks[i].Stack, found[ranks[i].PID])
	}
}

// traceOut adds what tools show that stop a rank while they read it. The kernel's view is from before, as it then shows
// the stop.
func traceOut(ctx context.Context, ranks []wire.RankState) {
	share := min(maxNativeStack, maxNative/max(len(ranks), 1))
	var pids []int
	for i, rank := range ranks {
		pids = append(pids, rank.PID)
		for _, thread := range stacks.Threads(rank.PID, share/2) {
			ranks[i].Threads = append(ranks[i].Threads, wire.ThreadState(thread))
		}
	}
	found := stacks.Native(ctx, pids, share/2)
	for i := range ranks {
		t := found[ranks[i].PID]
		ranks[i].Native, ranks[i].Tool, ranks[i].Notes = t.Stack, t.Tool, t.Notes
	}
}

// split returns what a process has counted, nil if it counted nothing, or while its clock is not known yet.
func (m *Monitor) split(number int) *wire.Split {
	m.Beat()
	if m.processes.of(number).noted == 0 {
		return nil
	}
	return m.gauges.split(number)
}

// Beat takes note of the control groups and the clocks of processes that have begun a session: wrappers have put them
// where they run by then. It is called about once a second, and before a rank's counters are read.
func (m *Monitor) Beat() {
	for number, p := range m.processes {
		if pid := m.session(number); p.running && pid != 0 && pid != p.noted {
			p.memory, p.noted = signs.MemoryOf(pid), pid
			if page := m.gauges[number].page; page != nil {
				page.Follow(pid)
			}
		}
	}
}

// Failed reports whether a process of this host has failed.
func (m *Monitor) Failed() bool {
	for _, p := range m.processes {
		if p.exit != nil && p.exit.Code != 0 && !p.exit.Asked {
			return true
		}
	}
	return false
}

// Usage adds what the ranks of this host use to a report, or only what they have counted to a brief one, and sends it.
func (m *Monitor) Usage(msg *wire.Usage) {
	msg.Epoch = m.world().Epoch
	var pids []int
	for _, number := range m.processes.running() {
		pids = append(pids, m.processes.of(number).pid)
		msg.Ranks = append(msg.Ranks, wire.RankUsage{Rank: number, Split: m.split(number)})
	}
	if !msg.Brief {
		used, err := proc.Used(pids)
		if err != nil {
			m.Log.Warn("read usage", "err", err)
		}
		now := time.Now().UnixMicro()
		for i, pid := range pids {
			r, u := &msg.Ranks[i], used[pid]
			r.CPUMS, r.RSS, r.Processes, r.State = u.CPU.Milliseconds(), u.RSS, u.Processes, proc.Describe(pid)
			r.Arena, r.At = m.arena(r.Rank), now
		}
	}
	m.Out.Write(msg)
}

// Account repeats, for a launcher that has taken over, which processes were started, how some ended, and that state was
// committed here.
func (m *Monitor) Account() {
	for _, number := range m.processes.numbers() {
		if pid := m.processes.of(number).pid; pid != 0 {
			m.Out.Write(&wire.Started{Process: number, PID: pid})
		}
	}
	for _, number := range m.processes.numbers() {
		if exit := m.processes.of(number).exit; exit != nil {
			m.Out.Write(exit)
		}
	}
	if m.worlds.committed > 0 {
		m.Out.Write(&wire.StateKept{Epoch: m.worlds.committed})
	}
}

// AccountWaiting repeats which processes wait for another world.
func (m *Monitor) AccountWaiting() {
	for _, number := range m.processes.running() {
		if msg := m.worlds.of(number).rejoining; msg != nil {
			m.Out.Write(msg)
		}
	}
}

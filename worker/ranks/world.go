package ranks

import (
	"context"
	"slices"
	"time"

	"gorun/rendezvous/wire"
	"gorun/worker/loop"
)

// goodbyeTimeout is how long a rank may take to end after its goodbye before the others learn that it is gone. A
// rank that dies of an exception sends goodbye first and exits a little later: its exit is to be reported before
// the exits of the ranks that fail because of it.
const goodbyeTimeout = 2 * time.Second

// Worlds takes processes out of the world that they are in.
type Worlds struct {
	loop.Component
	daemon     Daemon
	kill       func(process int)
	processes  processes
	departures map[int]*departure // by process
	committed  uint32             // the last epoch in which a process here committed its state
}

// departure is how a process leaves worlds.
type departure struct {
	goodbye   *time.Timer     // runs since its goodbye, nil before
	gone      bool            // the engine no longer counts on it in the present world
	rejoining *wire.Rejoining // why it waits, or waited last, for another world
}

// of returns how a process leaves.
func (w *Worlds) of(number int) *departure {
	d := w.departures[number]
	if d == nil {
		d = &departure{}
		w.departures[number] = d
	}
	return d
}

// Enter takes processes out of the world that has begun if they ended while it was formed.
func (w *Worlds) Enter() {
	for _, rank := range w.daemon.World().Roster.Ranks {
		if p := w.processes.of(rank.Process); p.started && !p.running {
			w.leave(rank.Process)
		}
	}
}

// End has processes be in no world. Processes that the next roster lacks are ended.
func (w *Worlds) End(next *wire.Roster) {
	for _, d := range w.departures {
		d.stopTimer()
		d.gone = false
	}
	w.Drop(next)
}

// Drop ends the processes that a roster lacks.
func (w *Worlds) Drop(r *wire.Roster) {
	for number, p := range w.processes {
		if p.running && !lists(r.Ranks, number) && !lists(r.Spares, number) {
			p.dropped = true
			w.kill(number)
		}
	}
}

// lists reports whether a process is one of some ranks.
func lists(ranks []wire.Rank, process int) bool {
	return slices.ContainsFunc(ranks, func(rank wire.Rank) bool { return rank.Process == process })
}

// Left notes a goodbye; what it means depends on what comes next, the end of the process or its return.
func (w *Worlds) Left(ctx context.Context, number int, epoch uint32) {
	d := w.of(number)
	switch {
	case epoch != w.daemon.World().Epoch:
		return // that world is over
	case !w.processes.of(number).running:
		w.leave(number)
	case d.goodbye == nil:
		d.goodbye = time.AfterFunc(goodbyeTimeout, func() {
			w.Loop.Post(ctx, func() {
				if epoch == w.daemon.World().Epoch {
					w.leave(number)
				}
			})
		})
	}
}

// Rejoining lets the others know at once that a process has left the world for good: it waits for the next one. A spare
// has left none.
func (w *Worlds) Rejoining(msg *wire.Rejoining) {
	world := w.daemon.World()
	if msg.Epoch == 0 {
		if world.Roster != nil && lists(world.Roster.Spares, msg.Process) {
			w.of(msg.Process).rejoining = msg
			w.Out.Write(msg)
		}
		return
	}
	if msg.Epoch != world.Epoch {
		return // the next one is under way
	}
	w.leave(msg.Process)
	w.of(msg.Process).rejoining = msg
	w.Out.Write(msg)
}

// Committed lets the launcher know, once in each world, that a process here has committed its state.
func (w *Worlds) Committed(epoch uint32) {
	if epoch > w.committed {
		w.committed = epoch
		w.Out.Write(&wire.StateKept{Epoch: epoch})
	}
}

// leave takes a process out of the present world.
func (w *Worlds) leave(number int) {
	d := w.of(number)
	d.stopTimer()
	if d.gone {
		return
	}
	world := w.daemon.World()
	for _, rank := range world.Roster.Ranks {
		if rank.Process == number && world.Formed() {
			d.gone = true
			w.daemon.Leave(world.Epoch, rank.Rank)
		}
	}
}

func (w *Worlds) close() {
	for _, d := range w.departures {
		d.stopTimer()
	}
}

func (d *departure) stopTimer() {
	if d.goodbye != nil {
		d.goodbye.Stop()
		d.goodbye = nil
	}
}

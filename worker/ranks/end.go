package ranks

import (
	"cmp"
	"context"
	"syscall"
	"time"

	"gorun/rendezvous/resume"
	"gorun/rendezvous/wire"
	"gorun/worker/proc"
)

const (
	// goodbyeTimeout is how long a rank may take to end after its goodbye before the others learn that it is gone. A
	// rank that dies of an exception sends goodbye first and exits a little later: its exit is to be reported before
	// the exits of the ranks that fail because of it.
	goodbyeTimeout = 2 * time.Second
	// shutdownGrace is how long the end of a rank of an elastic job is kept back if it came by a signal that ends
	// everything on a host that is shut down: whether it ends this daemon too is known by then. If so, the host is
	// lost, and may come back; the rank's slot did not fail.
	shutdownGrace = 200 * time.Millisecond
	// exitFailure is for a rank that fails although it exited with 0.
	exitFailure = 1
)

// Exits brings the ends of processes, which Exited takes.
func (r *Ranks) Exits() <-chan proc.Exit { return r.group.Exits() }

// Exited takes the end of a process.
func (r *Ranks) Exited(ctx context.Context, e proc.Exit) {
	switch {
	case r.job.Elastic && !r.stopping && !r.of(e.Process).dropped &&
		(e.Signal == syscall.SIGTERM || e.Signal == syscall.SIGHUP):
		r.cfg.Loop.Go(func() {
			resume.Pause(ctx, cmp.Or(r.cfg.ShutdownGrace, shutdownGrace))
			r.cfg.Loop.Post(ctx, func() { r.ended(e, false) })
		})
	case e.Code != 0 || r.stopping || !r.cfg.MPI.Inside(e.Process):
		r.ended(e, false)
	default:
		r.cfg.Loop.Go(func() { // its last message may not be read yet
			unfinished := !r.cfg.MPI.Left(e.Process)
			r.cfg.Loop.Post(ctx, func() { r.ended(e, unfinished) })
		})
	}
}

// ended reports the end of a process, then that the engine is not to count on it, in this order. An MPI program that
// has not left MPI is unfinished: the others would wait for it.
func (r *Ranks) ended(e proc.Exit, unfinished bool) {
	p := r.of(e.Process)
	p.running = false
	p.exit = r.verdict(p, e, unfinished)
	r.cfg.Out.Write(p.exit)
	r.cfg.MPI.Ended(e.Process)
	r.leave(e.Process)
}

// verdict returns how the launcher is to take the end of a process.
func (r *Ranks) verdict(p *process, e proc.Exit, unfinished bool) *wire.Exited {
	msg := &wire.Exited{Process: e.Process, Code: e.Code, Signal: int(e.Signal), Asked: r.stopping || p.dropped,
		Deaf: r.cfg.Daemon.Deaf(), Split: r.split(e.Process)}
	if p.aborted != 0 {
		msg.Code, msg.Signal = p.aborted, 0
	}
	if e.Err != nil {
		msg.Error = e.Err.Error()
	}
	if unfinished && !msg.Asked {
		msg.Code, msg.Unfinished = exitFailure, true
	}
	if msg.Code == 0 && !msg.Asked {
		if msg.Alone = r.alone(e.Process); msg.Alone != "" {
			msg.Code = exitFailure
		}
	} else if r.job.IfAlone == wire.AloneEnds && p.mpi.begun && e.Signal == syscall.SIGKILL {
		msg.Code, msg.Signal, msg.Alone = exitFailure, 0, p.mpi.library
	}
	return msg
}

// Left notes a goodbye; what it means depends on what comes next, the end of the process or its return.
func (r *Ranks) Left(ctx context.Context, number int, epoch uint32) {
	p := r.of(number)
	switch {
	case epoch != r.cfg.Daemon.World().Epoch:
		return // that world is over
	case !p.running:
		r.leave(number)
	case p.leaving == nil:
		p.leaving = time.AfterFunc(goodbyeTimeout, func() {
			r.cfg.Loop.Post(ctx, func() {
				if epoch == r.cfg.Daemon.World().Epoch {
					r.leave(number)
				}
			})
		})
	}
}

// Rejoining lets the others know at once that a process has left the world for good: it waits for the next one.
func (r *Ranks) Rejoining(msg *wire.Rejoining) {
	if msg.Epoch != r.cfg.Daemon.World().Epoch {
		return // the next one is under way
	}
	r.leave(msg.Process)
	r.of(msg.Process).rejoining = msg
	r.cfg.Out.Write(msg)
}

// Committed lets the launcher know, once in each world, that a process here has committed its state.
func (r *Ranks) Committed(epoch uint32) {
	if epoch > r.committed {
		r.committed = epoch
		r.cfg.Out.Write(&wire.StateKept{Epoch: epoch})
	}
}

// leave takes a process out of the present world.
func (r *Ranks) leave(number int) {
	p := r.of(number)
	if p.leaving != nil {
		p.leaving.Stop()
		p.leaving = nil
	}
	if p.gone {
		return
	}
	w := r.cfg.Daemon.World()
	for _, rank := range w.Roster.Ranks {
		if rank.Process == number && w.Formed() {
			p.gone = true
			r.cfg.Daemon.Leave(w.Epoch, rank.Rank)
		}
	}
}

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
	// shutdownGrace delays the report that TERM or HUP ended a rank of an elastic job. A host that shuts down sends
	// these to all processes. If this daemon ends too in that time, the host is lost and may come back; the rank's slot
	// did not fail.
	shutdownGrace = 200 * time.Millisecond
	// exitFailure is for a rank that fails although it exited with 0.
	exitFailure = 1
)

// Exits takes the ends of processes.
type Exits struct {
	cfg        Config
	group      *proc.Group
	processes  processes
	worlds     *Worlds
	stops      *Stops
	singletons *singletons
	gauges     gauges
}

// C brings the ends of processes, which Take takes.
func (x *Exits) C() <-chan proc.Exit { return x.group.Exits() }

// Take takes the end of a process.
func (x *Exits) Take(ctx context.Context, e proc.Exit) {
	loop, mpi := x.cfg.Loop, x.cfg.MPI
	switch {
	case x.cfg.Job.Elastic && !x.stops.begun && !x.processes.of(e.Process).dropped &&
		(e.Signal == syscall.SIGTERM || e.Signal == syscall.SIGHUP):
		loop.Go(func() {
			resume.Pause(ctx, cmp.Or(x.cfg.ShutdownGrace, shutdownGrace))
			loop.Post(ctx, func() { x.ended(e, false) })
		})
	case e.Code != 0 || x.stops.begun || !mpi.Inside(e.Process):
		x.ended(e, false)
	default:
		loop.Go(func() { // its last message may not be read yet
			unfinished := !mpi.Left(e.Process)
			loop.Post(ctx, func() { x.ended(e, unfinished) })
		})
	}
}

// ended reports the end of a process, then that the engine is not to count on it, in this order. An MPI program that
// has not left MPI is unfinished: the others would wait for it.
func (x *Exits) ended(e proc.Exit, unfinished bool) {
	p := x.processes.of(e.Process)
	p.running = false
	p.exit = x.verdict(p, e, unfinished)
	x.cfg.Out.Write(p.exit)
	x.cfg.MPI.Ended(e.Process)
	x.worlds.leave(e.Process)
}

// verdict returns how the launcher is to take the end of a process.
func (x *Exits) verdict(p *process, e proc.Exit, unfinished bool) *wire.Exited {
	msg := &wire.Exited{Process: e.Process, Code: e.Code, Signal: int(e.Signal), Asked: x.stops.begun || p.dropped,
		Deaf: x.cfg.Daemon.Deaf(), Split: x.gauges.split(e.Process), File: e.File}
	if p.aborted != 0 {
		msg.Code, msg.Signal = p.aborted, 0
	}
	if e.Err != nil {
		msg.Error = e.Err.Error()
	}
	msg.Memory = e.Signal == syscall.SIGKILL && !msg.Asked && p.memory.Short()
	if unfinished && !msg.Asked {
		msg.Code, msg.Unfinished = exitFailure, true
	}
	if msg.Code == 0 && !msg.Asked {
		if msg.Alone = x.singletons.judge(e.Process); msg.Alone != "" {
			msg.Code = exitFailure
		}
	} else if library, killed := x.singletons.killed(e.Process); killed && e.Signal == syscall.SIGKILL {
		msg.Code, msg.Signal, msg.Alone = exitFailure, 0, library
	}
	return msg
}

// Abort ends a process that called MPI_Abort and now waits to be killed. It counts as an exit with its code.
func (x *Exits) Abort(number, code int) {
	if p := x.processes.of(number); p.running && p.aborted == 0 {
		p.aborted = code
		x.group.Kill(number)
	}
}

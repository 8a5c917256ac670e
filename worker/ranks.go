package worker

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"

	"gorun/collective"
	"gorun/rendezvous/resume"
	"gorun/rendezvous/wire"
	"gorun/worker/proc"
	"gorun/worker/rankenv"
)

// farewell is how long a rank that said goodbye may take to end before the others are told that it is
// gone. A rank that dies of an exception says goodbye first and exits a little later: its exit is to be
// reported before those of the ranks that fail because of it.
const farewell = 2 * time.Second

// parting is how long the end of a rank of an elastic job is kept back that came by a signal which ends all there is on a host that
// is shut down: whether it ends this daemon too is known by then. If so, the host is lost, and may come back; the rank's slot did
// not fail.
const parting = 200 * time.Millisecond

// startRanks starts those processes of the roster that do not run yet.
func (d *daemon) startRanks(ctx context.Context) {
	if !slices.ContainsFunc(d.roster.Ranks, func(r wire.Rank) bool { return !d.started[r.Process] }) {
		return
	}
	d.closePorts() // they are the ranks' now
	gpus, err := d.gpus(ctx)
	if err != nil {
		d.refuse("choose GPUs", err, "see what the host has with nvidia-smi -L, or leave out --gpus")
		return
	}
	if err := d.bindRanks(gpus); err != nil {
		d.refuse("bind ranks", err, "--bind-to numa or --bind-to none asks for less")
		return
	}
	d.reportBindings()
	d.sayThreads()
	d.sayNICs()
	d.mpi.Open(ctx, d.roster)
	var begun []int
	for _, r := range d.roster.Ranks {
		if d.started[r.Process] {
			continue
		}
		begun = append(begun, r.Process)
		d.started[r.Process] = true
		inherit, facts := d.factsOf(ctx, r, gpus)
		env := rankenv.Environment(facts, slices.Concat(rankenv.Machine(d.cfg.Env), d.job.Env), r.Env)
		gpu := deviceOf(env, gpus, r.LocalRank)
		argv, dir := d.program(r, gpu)
		bound := d.binding(r)
		told := make(chan struct{})
		pid := d.ranks.Start(proc.Spec{Process: r.Process, Argv: argv, Env: env, Dir: dir, Stdin: slices.Contains(d.readers(), r.Process), Inherit: inherit, CPUs: bound.CPUs, Nodes: bound.Nodes},
			&output{d.out, r.Process, wire.Stdout, told}, &output{d.out, r.Process, wire.Stderr, told})
		d.running[r.Process] = true
		if pid != 0 {
			d.pids[r.Process] = pid
			d.out.Write(&wire.Started{Process: r.Process, PID: pid})
		}
		close(told)
	}
	d.lookForSingletons(ctx, begun)
}

// output sends what a rank writes to the launcher.
type output struct {
	to      *wire.Writer
	process int
	stream  wire.Stream
	told    <-chan struct{} // closed when the launcher has been told that the rank runs
}

func (o *output) Write(b []byte) (int, error) {
	<-o.told
	if err := o.to.Write(&wire.Output{Process: o.process, Stream: o.stream, Data: b}); err != nil {
		return 0, err
	}
	return len(b), nil
}

// readers are the processes of the job that read the launcher's standard input.
func (d *daemon) readers() []int {
	if d.job.Readers == nil {
		return []int{0}
	}
	return d.job.Readers
}

// feed is the way of standard input to the processes that read it: a goroutine, because one may never read.
func (d *daemon) feed(ctx context.Context) {
	for {
		select {
		case m := <-d.stdin:
			for _, process := range d.readers() {
				w := d.ranks.Stdin(process)
				if w == nil {
					continue // it is another host's, or has ended
				}
				w.Write(m.Data) // an error means that the rank has closed its end, which is its right
				if m.EOF {
					w.Close()
				}
			}
			d.out.Write(&wire.Taken{})
		case <-ctx.Done():
			return
		}
	}
}

// exited takes the end of a process.
func (d *daemon) exited(ctx context.Context, e proc.Exit) {
	switch {
	case d.job.Elastic && !d.stopping && !d.dropped[e.Process] && (e.Signal == syscall.SIGTERM || e.Signal == syscall.SIGHUP):
		d.loop.Go(func() {
			resume.Pause(ctx, cmp.Or(d.cfg.parting, parting))
			d.post(ctx, func() { d.ended(e, false) })
		})
	case e.Code != 0 || d.stopping || !d.mpi.Inside(e.Process):
		d.ended(e, false)
	default:
		d.loop.Go(func() { // its last words may not be read yet
			unfinished := !d.mpi.Left(e.Process)
			d.post(ctx, func() { d.ended(e, unfinished) })
		})
	}
}

// ended reports the end of a process, then tells the engine that it is gone, in this order. Of an MPI program that has not
// left MPI the others would wait for it.
func (d *daemon) ended(e proc.Exit, unfinished bool) {
	process := e.Process
	delete(d.running, process)
	msg := &wire.Exited{Process: process, Code: e.Code, Signal: int(e.Signal), Asked: d.stopping || d.dropped[process], Deaf: d.cfg.LauncherLease.deaf()}
	if code := d.aborted[process]; code != 0 {
		msg.Code, msg.Signal = code, 0
	}
	if e.Err != nil {
		msg.Error = e.Err.Error()
	}
	if unfinished && !msg.Asked {
		msg.Code, msg.Unfinished = exitFailure, true
	}
	if msg.Code == 0 && !msg.Asked {
		if msg.Alone = d.alone(process); msg.Alone != "" {
			msg.Code = exitFailure
		}
	} else if d.job.IfAlone == wire.AloneEnds && d.single[process].begun && e.Signal == syscall.SIGKILL {
		msg.Code, msg.Signal, msg.Alone = exitFailure, 0, d.single[process].library
	}
	d.exits[process] = msg
	d.out.Write(msg)
	d.mpi.Ended(process)
	d.leave(process)
}

// left notes a goodbye; what it means waits for the end of the process, or for its return.
func (d *daemon) left(ctx context.Context, process int, epoch uint32) {
	switch {
	case epoch != d.began:
		return // that world is over
	case !d.running[process]:
		d.leave(process)
	case d.leaving[process] == nil:
		d.leaving[process] = time.AfterFunc(farewell, func() {
			d.post(ctx, func() {
				if epoch == d.began {
					d.leave(process)
				}
			})
		})
	}
}

// rejoining tells the others at once that a process has left the world for good: it waits for the next one.
func (d *daemon) rejoining(r *wire.Rejoining) {
	if r.Epoch != d.began {
		return // the next one is under way
	}
	d.leave(r.Process)
	d.waiting[r.Process] = r
	d.out.Write(r)
}

// stateKept tells the launcher, once in each world, that a process here has committed its state.
func (d *daemon) stateKept(epoch uint32) {
	if epoch > d.kept {
		d.kept = epoch
		d.out.Write(&wire.StateKept{Epoch: epoch})
	}
}

// leave takes a process out of the present world.
func (d *daemon) leave(process int) {
	if t := d.leaving[process]; t != nil {
		t.Stop()
		delete(d.leaving, process)
	}
	if d.gone[process] {
		return
	}
	for _, r := range d.roster.Ranks {
		if r.Process == process && d.began == d.roster.Epoch {
			d.gone[process] = true
			d.engine.Leave(d.began, r.Rank)
		}
	}
}

// farewells is the engine as sessions see it: a rank's goodbye goes through the daemon's loop.
type farewells struct {
	*collective.Engine
	d   *daemon
	ctx context.Context
}

// Leave implements session.Engine.
func (f farewells) Leave(process int, epoch uint32, _ int) {
	f.d.post(f.ctx, func() { f.d.left(f.ctx, process, epoch) })
}

// stop ends all ranks; it may be called again with less grace.
func (d *daemon) stop(ctx context.Context, grace time.Duration) { d.stopBy(ctx, d.ranks.Stop, grace) }

// interrupt is stop for ranks that get INT first.
func (d *daemon) interrupt(ctx context.Context, grace time.Duration) {
	d.stopBy(ctx, d.ranks.Interrupt, grace)
}

func (d *daemon) stopBy(ctx context.Context, end func(context.Context, time.Duration) error, grace time.Duration) {
	d.stopping = true
	d.cfg.LauncherLease.end()
	d.stops++
	d.loop.Go(func() {
		err := end(context.WithoutCancel(ctx), grace)
		d.post(context.WithoutCancel(ctx), func() {
			d.stops--
			if err != nil {
				d.log.Warn("stop ranks", "error", err)
			}
		})
	})
}

// newToken makes what a rank proves itself with.
func newToken() (token [32]byte, err error) {
	if _, err = rand.Read(token[:]); err != nil {
		return token, fmt.Errorf("make rank token: %w", err)
	}
	return token, nil
}

var _ io.Writer = (*output)(nil)

func signalOf(n int) syscall.Signal { return syscall.Signal(n) }

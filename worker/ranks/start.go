package ranks

import (
	"context"
	"io"
	"slices"

	"gorun/rendezvous/wire"
	"gorun/worker/proc"
	"gorun/worker/rankenv"
)

// exitUsage is for a user who wants what this host does not have.
const exitUsage = 2

// Start starts those processes of the roster that were not started yet.
func (r *Ranks) Start(ctx context.Context) {
	roster := r.cfg.Daemon.World().Roster
	if !slices.ContainsFunc(roster.Ranks, func(rank wire.Rank) bool { return !r.of(rank.Process).started }) {
		return
	}
	r.ports.release()
	gpus, err := r.gpus(ctx, len(roster.Ranks))
	if err != nil {
		r.refuse("choose GPUs", err, "see what the host has with nvidia-smi -L, or leave out --gpus")
		return
	}
	if err := r.bind(roster, gpus); err != nil {
		r.refuse("bind ranks", err, "--bind-to numa or --bind-to none asks for less")
		return
	}
	r.reportGPUs()
	r.reportBindings(roster)
	r.reportThreads()
	r.cfg.Describe()
	r.cfg.MPI.Open(ctx, roster)
	var begun []int
	for _, rank := range roster.Ranks {
		if !r.of(rank.Process).started {
			begun = append(begun, rank.Process)
			r.start(ctx, rank, gpus)
		}
	}
	if roster.Size > 1 {
		r.lookForSingletons(ctx, begun)
	}
}

// start starts the process of a rank.
func (r *Ranks) start(ctx context.Context, rank wire.Rank, gpus []string) {
	r.count(rank.Process)
	inherit, facts := r.factsOf(ctx, rank, gpus)
	env := rankenv.Environment(facts, slices.Concat(rankenv.Machine(r.cfg.Env), r.job.Env), rank.Env)
	argv, dir := r.program(rank, deviceOf(env, gpus, rank.LocalRank))
	bound := r.binding.of(rank)
	notified := make(chan struct{})
	p := r.of(rank.Process)
	p.pid = r.group.Start(proc.Spec{Process: rank.Process, Argv: argv, Env: env, Dir: dir,
		Stdin: slices.Contains(r.readers(), rank.Process), Inherit: inherit, CPUs: bound.CPUs, Nodes: bound.Nodes},
		&output{r.cfg.Out, rank.Process, wire.Stdout, notified}, &output{r.cfg.Out, rank.Process, wire.Stderr, notified})
	p.started, p.running = true, true
	if p.pid != 0 {
		r.cfg.Out.Write(&wire.Started{Process: rank.Process, PID: p.pid})
	}
	close(notified)
}

// program returns what a rank runs and where: its own program or the job's, behind the user's wrapper.
func (r *Ranks) program(rank wire.Rank, gpu string) (argv []string, dir string) {
	argv, dir = r.job.Argv, r.job.Dir
	if len(rank.Argv) > 0 {
		argv, dir = rank.Argv, rank.Dir
	}
	return slices.Concat(rank.Fill(r.job.Wrapper, gpu), argv), dir
}

// refuse reports to the launcher that the user wants what this host does not have: there is nothing wrong with the
// host.
func (r *Ranks) refuse(step string, err error, hint string) {
	r.cfg.Out.Write(&wire.Failed{Step: step, Text: err.Error(), Hint: hint, Code: exitUsage, Peer: r.job.HostID})
}

// output sends what a rank writes to the launcher.
type output struct {
	to       *wire.Writer
	process  int
	stream   wire.OutputStream
	notified <-chan struct{} // closed when the launcher knows that the rank runs
}

var _ io.Writer = (*output)(nil)

func (o *output) Write(b []byte) (int, error) {
	<-o.notified
	if err := o.to.Write(&wire.Output{Process: o.process, Stream: o.stream, Data: b}); err != nil {
		return 0, err
	}
	return len(b), nil
}

// Input takes some of the launcher's standard input; ok is false if it is more than the launcher may send.
func (r *Ranks) Input(m *wire.Stdin) (ok bool) {
	select {
	case r.input <- m:
		return true
	default:
		return false
	}
}

// readers are the processes of the job that read the launcher's standard input.
func (r *Ranks) readers() []int {
	if r.job.Readers == nil {
		return []int{0}
	}
	return r.job.Readers
}

// Feed passes standard input on to the processes that read it until ctx ends. It has a goroutine of its own, because a
// process may never read.
func (r *Ranks) Feed(ctx context.Context) {
	for {
		select {
		case m := <-r.input:
			for _, process := range r.readers() {
				w := r.group.Stdin(process)
				if w == nil {
					continue // it is another host's, or has ended
				}
				w.Write(m.Data) // an error means that the rank has closed its end, which is its right
				if m.EOF {
					w.Close()
				}
			}
			r.cfg.Out.Write(&wire.Taken{})
		case <-ctx.Done():
			return
		}
	}
}

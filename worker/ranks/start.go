package ranks

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"gorun/rendezvous/wire"
	"gorun/worker/packed"
	"gorun/worker/proc"
	"gorun/worker/rankenv"
	"gorun/worker/signs"
)

// exitUsage is for a user who wants what this host does not have.
const exitUsage = 2

// Starter starts processes.
type Starter struct {
	cfg        Config
	group      *proc.Group
	processes  processes
	ports      ports
	cpus       cpus
	library    *os.File // libgorun, for JAX's own programs; nil if they do not get it
	gauges     gauges
	singletons *singletons
}

// open prepares what processes will find on this host.
func (s *Starter) open() (err error) {
	if err := s.ports.reserve(s.cfg.Job); err != nil {
		return err
	}
	if s.cfg.Job.JAX != "" {
		if s.library, err = packed.Open(s.cfg.Exe, "gorun/libgorun.so"); err != nil {
			return fmt.Errorf("--jax-engine: open native library: %w", err)
		}
	}
	return nil
}

func (s *Starter) close() {
	s.gauges.close()
	s.ports.release()
	s.library.Close() // nil is no file, which is an error
}

// Ports returns the ports that are kept free until the ranks start: torch's, and other frameworks'.
func (s *Starter) Ports() (master int, others []int) {
	return s.ports.numbers[0], s.ports.numbers[1:]
}

// Admit has the sessions expect the processes of a roster.
func (s *Starter) Admit(roster *wire.Roster) error {
	for _, rank := range slices.Concat(roster.Ranks, roster.Spares) {
		p := s.processes.of(rank.Process)
		if p.token != [32]byte{} {
			continue
		}
		if _, err := rand.Read(p.token[:]); err != nil {
			return fmt.Errorf("make rank token: %w", err)
		}
		s.cfg.Sessions.Expect(rank.Process, p.token)
	}
	return nil
}

// Start starts those processes of the world that were not started yet.
func (s *Starter) Start(ctx context.Context) {
	roster := s.cfg.Daemon.World().Roster
	begun := s.startAll(ctx, roster.Ranks, func() { s.cfg.MPI.Open(ctx, roster) }, s.refuse)
	if roster.Size > 1 {
		s.singletons.look(ctx, begun)
	}
}

// StartSpares starts those processes that wait for their first world and were not started yet. Where this host does not
// have what one of them needs, that spare alone ends: ranks and other spares go on.
func (s *Starter) StartSpares(ctx context.Context) {
	for _, spare := range s.cfg.Daemon.World().Roster.Spares {
		s.startAll(ctx, []wire.Rank{spare}, func() {}, func(step string, err error, _ string) {
			p := s.processes.of(spare.Process)
			p.started, p.exit = true, &wire.Exited{Process: spare.Process, Code: exitUsage, Error: fmt.Sprintf("%s: %v", step, err)}
			s.cfg.Out.Write(p.exit)
		})
	}
}

// startAll starts those of some ranks that were not started yet, and returns their numbers. ready is called before, and
// refuse in its place where this host does not have what they need.
func (s *Starter) startAll(ctx context.Context, ranks []wire.Rank, ready func(), refuse func(step string, err error, hint string)) (begun []int) {
	if !slices.ContainsFunc(ranks, func(rank wire.Rank) bool { return !s.processes.of(rank.Process).started }) {
		return nil
	}
	job, host, slots := s.cfg.Job, s.cfg.Daemon.Host(), 0
	for _, rank := range ranks {
		slots = max(slots, rank.Slot+1)
	}
	s.ports.release()
	gpus, err := chooseGPUs(job.GPUs, host, slots)
	if err != nil {
		refuse("choose GPUs", err, "see what the host has with nvidia-smi -L, or leave out --gpus")
		return nil
	}
	if err := s.cpus.bind(slots, gpus); err != nil {
		refuse("bind ranks", err, "--bind-to numa or --bind-to none asks for less")
		return nil
	}
	s.cpus.report(ranks)
	s.cpus.reportThreads()
	s.cfg.Describe()
	ready()
	for _, rank := range ranks {
		if !s.processes.of(rank.Process).started {
			begun = append(begun, rank.Process)
			s.start(ctx, rank, gpus)
		}
	}
	return begun
}

// start starts the process of a rank.
func (s *Starter) start(ctx context.Context, rank wire.Rank, gpus []string) {
	if !s.cfg.Job.Blind {
		s.gauges.open(rank.Process, s.cfg.Log)
	}
	inherit, facts := s.factsOf(ctx, rank, gpus)
	env := rankenv.Environment(facts, slices.Concat(rankenv.Machine(s.cfg.Env), s.cfg.Job.Env), rank.Env)
	argv, dir := s.programOf(rank, deviceOf(env, gpus, rank.Slot))
	if tree := s.cfg.Job.Tree; tree != nil {
		env = tree.EnvAt(s.cfg.Tree, env)
	}
	bound := s.cpus.binding.of(rank)
	notified := make(chan struct{})
	p := s.processes.of(rank.Process)
	p.pid = s.group.Start(proc.Spec{Process: rank.Process, Argv: argv, Env: env, Dir: dir,
		Stdin: slices.Contains(readersOf(s.cfg.Job), rank.Process), Inherit: inherit, CPUs: bound.CPUs, Nodes: bound.Nodes},
		&output{s.cfg.Out, rank.Process, wire.Stdout, notified}, &output{s.cfg.Out, rank.Process, wire.Stderr, notified})
	p.started, p.running = true, true
	if p.pid != 0 {
		s.cfg.Out.Write(&wire.Started{Process: rank.Process, PID: p.pid})
		p.memory = signs.MemoryOf(p.pid)
	}
	close(notified)
}

// workIn returns the working directory of a rank whose program was sent: in the tree it may have no files, and elsewhere it
// may be on the launcher's machine alone.
func (s *Starter) workIn(dir string) string {
	if strings.HasPrefix(dir, s.cfg.Tree+"/") {
		os.MkdirAll(dir, 0o700) // or the rank says what is wrong
		return dir
	}
	missing := func() bool { _, err := os.Stat(dir); return errors.Is(err, fs.ErrNotExist) }
	if is, known := proc.Within(time.Second, missing); known && is {
		return s.cfg.Tree
	}
	return dir
}

// programOf returns what a rank runs and where: its own program or the job's, behind the user's wrapper, in the job's tree if
// it has one.
func (s *Starter) programOf(rank wire.Rank, gpu string) (argv []string, dir string) {
	job := s.cfg.Job
	argv, dir = job.Argv, job.Dir
	if len(rank.Argv) > 0 {
		argv, dir = rank.Argv, rank.Dir
	}
	argv = slices.Concat(rank.Fill(job.Wrapper, gpu), argv)
	if job.Tree == nil {
		return argv, dir
	}
	argv, dir = job.Tree.At(s.cfg.Tree, argv, dir)
	return argv, s.workIn(dir)
}

// refuse reports to the launcher that the user wants what this host does not have: there is nothing wrong with the
// host.
func (s *Starter) refuse(step string, err error, hint string) {
	s.cfg.Out.Write(&wire.Failed{Step: step, Text: err.Error(), Hint: hint, Code: exitUsage, Peer: s.cfg.Job.HostID})
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

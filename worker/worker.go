// Package worker is the daemon on a host. It forms the world with the other daemons of the job, runs the collective
// engine, and starts and watches the ranks of its host.
//
// The daemon is made of components, each with its own state: who is in the world (member), the network between hosts
// (network), what adapts the ring to it (tune, pauses), the processes of ranks (ranks, compat), operations that wait
// for them (stall), and the machine itself (machine, moves). One goroutine (daemon.run, package loop) calls all of
// them: it routes what the launcher, gossip, links and processes report to the component that it concerns.
// services.go shows what each component gets to know of the others.
//
// Run returns when every rank has ended, every goroutine has returned, and nothing of the job is left on the host.
package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"gorun/rendezvous/liveness"
	"gorun/rendezvous/pause"
	"gorun/rendezvous/wire"
	"gorun/topology/probe"
	"gorun/worker/loop"
	"gorun/worker/machine"
	"gorun/worker/network"
	"gorun/worker/proc"
	"gorun/worker/python"
	"gorun/worker/rankenv"
	"gorun/worker/ranks"
	"gorun/worker/session"
	"gorun/worker/shipped"
	"gorun/worker/stall"
)

const (
	// watchPeriod is the interval between looks at how fast the links are.
	watchPeriod = time.Second
	// orphanGrace is how long ranks have between TERM and KILL when no launcher is left to wait for them.
	orphanGrace = 1500 * time.Millisecond
	// flushTimeout is how long a daemon that is to end tries to report it before it ends its ranks. The connection may
	// have been its supervisor's, so that the launcher has to come anew.
	flushTimeout = 3 * time.Second
)

// exitUsage is for a user who wants what this host does not have.
const exitUsage = 2

// Run serves one job. The end of ctx ends the job at once.
func Run(ctx context.Context, cfg Config) error {
	if cfg.LauncherLease == nil {
		cfg.LauncherLease = NewLauncherLease()
	}
	d := &daemon{cfg: cfg, out: wire.NewWriter(cfg.Out), inbox: inbox{messages: make(chan wire.Message)}, loop: loop.New(),
		paths: newPaths()}
	if err := d.out.Write(&wire.Hello{Proto: wire.Proto, Version: cfg.Version, PID: os.Getpid()}); err != nil {
		return err
	}
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	go d.inbox.read(work, cfg.In, cfg.Another)
	for d.job == nil {
		select {
		case msg, ok := <-d.inbox.messages:
			if !ok {
				return nil // the launcher went away before it sent anything
			}
			switch msg := msg.(type) {
			case *wire.Alive:
			case *wire.Adopt:
				d.out.Write(&wire.Account{})
			case *wire.Job:
				d.job = msg
			default:
				return fmt.Errorf("start daemon: expected Job, got %T", msg)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	err := d.open(ctx, work)
	if err != nil {
		failed := &wire.Failed{Step: "start daemon", Text: err.Error(), Peer: d.job.HostID}
		if _, ok := errors.AsType[*network.UnknownNICsError](err); ok {
			failed.Code = exitUsage
			failed.Hint = "--network-interfaces takes names, drivers and networks; each host needs one of them that is up"
		} else if unfit, ok := errors.AsType[*shipped.PythonError](err); ok {
			failed.Code, failed.Hint = exitUsage, unfit.Hint
		}
		d.out.Write(failed)
	} else {
		d.run(ctx, work)
		d.reportTuning()
		if !d.flown && d.ranks.Monitor.Failed() && !d.inbox.gone {
			d.sendFlight(lastFlight)
		}
	}
	cancel()
	err = errors.Join(err, d.close())
	if !d.inbox.gone {
		d.cfg.LauncherLease.note((*liveness.LauncherLease).Over)
		if d.log != nil {
			d.log.finish()
		}
		done := &wire.Done{}
		if d.net != nil {
			done.Links = d.net.Totals()
		}
		d.out.Write(done)
	}
	return err
}

// open starts everything that listens and reports Ready. It ends early with end, if files have to come first; what it starts goes
// on until ctx ends.
func (d *daemon) open(end, ctx context.Context) error {
	job := d.job
	if len(job.Secret) != 32 || job.HostID < 0 || len(job.Argv) == 0 || job.Slots < 0 || job.Slots > 1<<16 {
		return errors.New("check job: incomplete")
	}
	d.peers = newPeerWatch(job)
	d.cfg.LauncherLease.note(func(s *liveness.LauncherLease) {
		s.Configure(d.peers.timing)
		s.World(0, nil, d.peers.lease)
	})
	d.log = openJournal(d.out, job.Verbose)
	d.openServices()
	d.openTuning()
	var err error
	var interfaces []probe.Interface
	d.machine, interfaces, err = machine.Open(ctx, machine.Config{Component: d.component(),
		Daemon: services{d}, Seen: d.cfg.Seen})
	if err != nil {
		return err
	}
	d.net = network.New(network.Config{Component: d.component(), Daemon: services{d},
		Lease: d.peers.lease, NoRDMA: d.cfg.NoRDMA})
	d.openMembership()
	d.openMoves()
	if err := d.getFiles(end, ctx); err != nil {
		return err
	}
	addrs, err := d.net.FirstAddresses(interfaces)
	if err != nil {
		return err
	}
	if err := d.openNetwork(ctx, addrs); err != nil {
		return err
	}
	if err := d.openRanks(ctx); err != nil {
		return err
	}
	d.machine.FindDataNIC()
	port, ports := d.ranks.Starter.Ports()
	ready := &wire.Ready{Ports: ports, Gossip: d.net.Addr(), Data: d.net.Own(), Host: d.machine.Host(), Port: port,
		KVPort: d.horovod.Port()}
	if !job.Alone && len(job.Wrapper) == 0 { // a wrapper may start another Python
		ready.Python, _ = proc.Within(time.Second, d.python)
	}
	if ready.Files, err = d.serveTree(ctx); err != nil {
		return err
	}
	d.ready = ready
	if err := d.out.Write(ready); err != nil {
		return err
	}
	if d.machine.MovedSinceFile() {
		d.component().Say("was moved or started again since the topology file was written: its labels and edges there do not count")
	}
	return nil
}

// python describes the Python that the ranks of the job will be.
func (d *daemon) python() map[string]string {
	argv, dir, env := d.job.Argv, d.job.Dir, slices.Concat(rankenv.Machine(d.cfg.Env), d.job.Env)
	if d.job.Tree != nil {
		argv, dir = d.job.Tree.At(d.tree, argv, dir)
	}
	if d.venv != "" {
		env = append(env, "PATH="+d.venv+"/bin")
	}
	file, _ := proc.Find(argv[0], env, dir) // a rank will say what is wrong
	return python.Describe(file, env)
}

// openNetwork starts gossip, links and the engine.
func (d *daemon) openNetwork(ctx context.Context, addrs []netip.Addr) error {
	if err := d.net.Open(ctx, addrs); err != nil {
		return err
	}
	if err := d.horovod.Listen(ctx, d.net.Bind(), d.net.Key); err != nil {
		return err
	}
	broken := func(peer int, err error) { d.loop.Go(func() { d.post(ctx, func() { d.lost(peer, err) }) }) }
	var err error
	if d.engine, err = openEngine(d.job, d.net, d.memory(), d.log.Logger, broken); err != nil {
		return err
	}
	return d.net.Connect(ctx, d.engine.prober)
}

// memory is the limit for each user of shared memory: all that the machine has. Memory is only taken when it is
// written, so the limit serves to give a clear error before the machine runs out. docs/decisions/0008 explains why
// ranks have no shares of it.
func (d *daemon) memory() int64 {
	if d.machine.Host().MemBytes > 0 {
		return d.machine.Host().MemBytes
	}
	return 16 << 30
}

// openRanks prepares for the ranks: their sessions, and their processes' parent.
func (d *daemon) openRanks(ctx context.Context) error {
	d.sessions = session.New(session.Config{Job: d.job.ID, Engine: goodbyes{d.engine.Engine, d, ctx}, Log: d.log.Logger,
		ArenaLimit: d.memory(), Sent: d.net.Sent,
		Rejoin: func(process int, epoch uint32, why string) {
			d.post(ctx, func() { d.ranks.Worlds.Rejoining(&wire.Rejoining{Process: process, Epoch: epoch, Why: why}) })
		},
		Kept:   func(epoch uint32) { d.post(ctx, func() { d.ranks.Worlds.Committed(epoch) }) },
		Wanted: func() { d.post(ctx, d.member.Want) },
		Setenv: func(_ int, name, value string) { d.post(ctx, func() { d.stalls.SetEnv(name, value) }) }})
	d.stalls = stall.New(d.job.Env, d.out, d.engine, d.sessions)
	socket, err := d.sessions.Listen()
	if err != nil {
		return err
	}
	d.ranks, err = ranks.Open(ranks.Config{Component: d.component(), Exe: d.cfg.Exe, Tree: d.tree, Python: d.venv,
		Env: d.cfg.Env, Daemon: services{d},
		Sessions: d.sessions, Socket: socket, MPI: d.mpi, Horovod: d.horovod, NICs: d.net.NICs(), Describe: d.net.Describe,
		ShutdownGrace: d.cfg.shutdownGrace})
	return err
}

// run handles one thing at a time until the job is over; ctx is the order to end it.
func (d *daemon) run(ctx, work context.Context) {
	pulse, edges := time.NewTicker(d.peers.timing.HostInterval), time.NewTicker(watchPeriod)
	defer pulse.Stop()
	defer edges.Stop()
	d.moves.Watch(work, d.machine.Host().Platform)
	d.loop.Go(func() { d.live(work) })
	d.loop.Go(func() { d.machine.Watch(work) })
	d.loop.Go(func() { d.watchAddresses(work) })
	d.loop.Go(func() { d.watchLauncher(work) })
	d.loop.Go(func() { d.ranks.Input.Feed(work) })
	d.loop.Go(func() { d.sessions.Run(work) })
	d.loop.Go(func() { d.engine.Run(work) })
	inbox, ended := d.inbox.messages, ctx.Done()
	for !d.ranks.Stops.Over() {
		select {
		case m, ok := <-inbox:
			if !ok { // the launcher is gone, and with it the reason for all this
				d.tellGone()
				inbox, d.inbox.gone = nil, true
				d.cfg.LauncherLease.Hears(false) // peers need not wait until this daemon has ended
				d.stop(work, orphanGrace)
				break
			}
			d.receive(work, m)
		case ev := <-d.net.Events():
			d.gossiped(work, ev)
		case e := <-d.ranks.Exits.C():
			d.ranks.Exits.Take(work, e)
		case f := <-d.loop.C():
			f()
		case line := <-d.log.lines:
			d.log.tell(line)
		case <-d.member.Ticks():
			d.member.Tick(work)
			d.pauses.Step(work, pause.Event{Tick: true})
		case <-pulse.C:
			d.beat(work)
		case <-d.cfg.Record:
			d.wantFlight("SIGUSR2")
		case <-edges.C:
			d.paths.look(d.statuses())
			if d.member.World().Epoch != 0 && !d.member.Ending() {
				d.tune.Watch(work)
			}
		case now := <-d.stalls.Ticks():
			if !d.pauses.Paused() {
				d.stalls.Check(now)
			}
		case <-ended:
			// Before the ends of the ranks, which would look as if the launcher had asked for them.
			d.component().Fail("run", context.Cause(ctx), "")
			ended, d.inbox.gone = nil, true
			d.endWorlds()
			d.ranks.Stops.KillAfter(work, func() {
				if d.cfg.Flush != nil { // or ranks of other hosts, which fail because these end, may be taken for the cause
					d.cfg.Flush(flushTimeout)
				}
			})
		}
	}
}

// receive handles a message of the launcher.
func (d *daemon) receive(ctx context.Context, m wire.Message) {
	switch m := m.(type) {
	case *wire.Peers:
		d.member.Announce(m)
	case *wire.Roster:
		d.member.Join(ctx, m)
	case *wire.Spares:
		d.member.Spare(ctx, m)
	case *wire.Form:
		d.member.Form(ctx, m.Epoch)
	case *wire.Alive:
	case *wire.Adopt:
		d.cfg.LauncherLease.signalled(int(syscall.SIGCONT)) // that one runs
		d.account()
	case *wire.HostsChanged:
		d.sessions.Changed(m.Epoch, m.Added, m.Removed, m.Stamp)
		d.horovod.Announce(ctx, m)
	case *wire.Stdin:
		if !d.ranks.Input.Take(m) {
			d.log.Warn("launcher: more standard input than it may send", "bytes", len(m.Data))
		}
	case *wire.Fence, *wire.Name:
		d.mpi.Receive(m)
	case *wire.Migrating: // as vCenter reports it
		d.moves.Host(ctx, m)
	case *wire.Moved:
		d.peerMoved(m)
	case *wire.Signal:
		d.cfg.LauncherLease.signalled(m.Number)
		d.ranks.Stops.Signal(m.Number)
	case *wire.Inspect:
		d.inspect(ctx, m)
	case *wire.AskFlight:
		d.sendFlight(m.Most)
	case *wire.AskUsage:
		d.sendUsage(m.Brief)
	case *wire.AskStalled:
		d.stalls.Answer()
	case *wire.GiveUp:
		d.stalls.GiveUp(m)
	case *wire.Stop:
		if m.Record > 0 {
			d.flown = true
			d.sendFlight(m.Record)
		}
		switch grace := d.job.Grace; {
		case m.Now:
			d.stop(ctx, 0)
		case m.Interrupt:
			d.endWorlds()
			d.ranks.Stops.Interrupt(ctx, grace)
		default:
			d.stop(ctx, grace)
		}
	default:
		d.log.Warn("launcher: unexpected message", "type", fmt.Sprintf("%T", m))
	}
}

// stop ends all ranks; it may be called again with less grace.
func (d *daemon) stop(ctx context.Context, grace time.Duration) {
	d.endWorlds()
	d.ranks.Stops.Stop(ctx, grace)
}

// endWorlds keeps other worlds from beginning: the ranks are about to end.
func (d *daemon) endWorlds() {
	d.member.End()
	d.cfg.LauncherLease.note((*liveness.LauncherLease).End)
}

// tellGone logs on the host why its ranks are ended, if the launcher did not end the job: no one else hears of it.
func (d *daemon) tellGone() {
	if d.cfg.Report != nil && !errors.Is(d.inbox.err, io.EOF) {
		text := fmt.Sprintf("job %s, %s: %v: its ranks on this host are ended", d.job.ID, filepath.Base(d.job.Argv[0]),
			d.inbox.err)
		d.loop.Go(func() { d.cfg.Report(text) })
	}
}

// close ends everything in the reverse order of open and waits for it.
func (d *daemon) close() error {
	var errs []error
	if d.ranks != nil {
		errs = append(errs, d.ranks.Close())
	}
	if d.stalls != nil {
		d.stalls.Stop()
	}
	if d.mpi != nil {
		d.mpi.Close()
	}
	if d.engine != nil {
		d.engine.Close()
	}
	if d.net != nil {
		d.net.CloseListener()
	}
	if d.horovod != nil {
		d.horovod.Close()
	}
	if d.net != nil {
		errs = append(errs, d.net.Close())
	}
	if d.member != nil {
		d.member.Close()
	}
	d.loop.Wait()
	if d.files != nil {
		d.files.Close()
	}
	if d.engine != nil {
		d.engine.results.Close()
	}
	return errors.Join(errs...)
}

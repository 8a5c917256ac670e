package proc

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Group holds the ranks of one job on this host.
type Group struct {
	unbrand func()
	cfg     Config
	self    Process
	calls   chan func() // run by the loop
	exits   chan Exit
	ended   chan struct{}  // the loop has returned
	wg      sync.WaitGroup // the goroutines of the ranks
	mute    time.Time      // when a file system did not answer Start, which runs once at a time

	// What follows belongs to the loop.
	ranks  []*rank // whose Exit is not yet queued
	queue  []Exit
	stop   *stop
	strays sweep
	clock  scanClock
	closed bool
	torn   bool // a rank was given up while one of its goroutines was still at work
}

// rank is a started process until its Exit is queued. It runs; it has ended; everything it started has ended (clean);
// its pipes are drained.
type rank struct {
	spec  Spec
	child *child
	pid   int
	file  string // its program
	exit  Exit
	ended bool
	sweep sweep
	clean time.Time // zero while a process is left
	pipes int       // that are still open
}

// stop is one or more pending calls of Stop and Interrupt.
type stop struct {
	sweep   sweep
	polite  bool      // the ranks are still to be interrupted
	termAt  time.Time // when ranks that ignore the interrupt get TERM
	empty   int       // scans in a row that found nothing
	replies []chan error
}

// sweep ends processes: TERM, later KILL.
type sweep struct {
	termed bool
	killAt time.Time
}

// Open makes this process the adopter of orphans and starts a group without ranks.
func Open(cfg Config) (*Group, error) {
	cfg.Linger = cmp.Or(cfg.Linger, 500*time.Millisecond)
	cfg.Drain = cmp.Or(cfg.Drain, time.Second)
	self, err := readSelf()
	if err != nil {
		return nil, err
	}
	if err := adoptOrphans(); err != nil {
		return nil, err
	}
	g := &Group{cfg: cfg, unbrand: brand(), self: self, calls: make(chan func()),
		exits: make(chan Exit), ended: make(chan struct{})}
	go g.loop()
	return g, nil
}

// Exits delivers the end of every rank, after its last output. Nothing is lost and nothing waits for the receiver until
// Close, which closes the channel and discards the rest.
func (g *Group) Exits() <-chan Exit { return g.exits }

// Start starts a rank and returns its process id, or 0 if it could not start; its Exit has the reason. The rank's
// output goes to stdout and stderr, each from a goroutine of its own. A write that blocks makes the rank wait; it must
// return when the group is to be closed.
func (g *Group) Start(spec Spec, stdout, stderr io.Writer) (pid int) {
	spec.Argv = slices.Clone(spec.Argv)
	defer closeAll(spec.Inherit)
	env := spec.environment(g.cfg.Job)
	path, err := g.find(spec, env) // may wait for a file server: not on the loop
	g.do(func() { pid = g.start(spec, path, env, err, stdout, stderr) })
	return pid
}

// lookTimeout is how long a file server may take to find a program.
const lookTimeout = 20 * time.Second

// find looks a program up. It gives up on a file server that is gone; the other ranks do not wait for it again.
func (g *Group) find(spec Spec, env []string) (string, error) {
	if g.mute.IsZero() || time.Since(g.mute) > lookTimeout {
		var file string
		if err, ok := Within(lookTimeout, func() (err error) { file, err = look(spec, env); return err }); ok {
			return file, err
		}
		g.mute = time.Now()
	}
	return "", &startError{exitNotExecutable, fmt.Sprintf("%s: its file system has not answered for %v", spec.program(), lookTimeout), unix.ETIMEDOUT}
}

func look(spec Spec, env []string) (file string, err error) {
	if err = checkDir(spec.Dir); err == nil {
		file, err = lookPath(spec.program(), env, spec.Dir)
	}
	if err == nil {
		err = checkBeginning(file, env, spec.Dir)
	}
	return file, err
}

// Stdin returns the pipe to a running process that was started with Spec.Stdin, else nil. Writes block while
// it does not read, and fail when it has ended.
func (g *Group) Stdin(process int) io.WriteCloser {
	var w io.WriteCloser
	g.do(func() {
		for _, r := range g.running() {
			if r.spec.Process == process && r.child.stdin != nil {
				w = r.child.stdin
			}
		}
	})
	return w
}

// Signal sends a signal to the process group of every running rank. TSTP arrives as STOP: the kernel
// ignores TSTP in a session without a terminal.
func (g *Group) Signal(sig syscall.Signal) {
	if sig == unix.SIGTSTP {
		sig = unix.SIGSTOP
	}
	g.do(func() { g.signal(sig) })
}

// Kill ends a running rank at once, with what is in its process group.
func (g *Group) Kill(process int) {
	g.do(func() {
		for _, r := range g.running() {
			if r.spec.Process == process {
				unix.Kill(-r.pid, unix.SIGKILL)
			}
		}
	})
}

// Stop ends everything of the job on this host: TERM, and KILL after grace or when ctx ends. It returns when nothing is
// left and every Exit is queued, or with a *StuckError if something outlived KILL. A second Stop shortens the grace of
// the first. No rank starts meanwhile.
func (g *Group) Stop(ctx context.Context, grace time.Duration) error { return g.end(ctx, 0, grace) }

// Interrupt is Stop for a user's Ctrl-C: ranks get INT first, like the processes of a terminal, and TERM if they have
// not ended after most of the grace.
func (g *Group) Interrupt(ctx context.Context, grace time.Duration) error {
	return g.end(ctx, grace/3*2, grace)
}

func (g *Group) end(ctx context.Context, patience, grace time.Duration) error {
	reply := make(chan error, 1)
	g.do(func() { g.stopBy(time.Now().Add(patience), time.Now().Add(grace), patience > 0, reply) })
	select {
	case err := <-reply:
		return err
	case <-g.ended:
		return nil
	case <-ctx.Done():
	}
	g.do(func() { g.stopBy(time.Now(), time.Now(), false, nil) })
	select {
	case err := <-reply:
		return err
	case <-g.ended:
		return nil
	}
}

// Close stops without grace and ends the group's goroutines.
func (g *Group) Close() error {
	err := g.Stop(context.Background(), 0)
	g.do(func() { g.closed = true })
	<-g.ended
	g.unbrand()
	if !g.torn {
		g.wg.Wait()
	}
	return err
}

// do runs f on the loop, and not at all when the group is closed.
func (g *Group) do(f func()) {
	done := make(chan struct{})
	g.post(func() { f(); close(done) })
	select {
	case <-done:
	case <-g.ended:
	}
}

func (g *Group) post(f func()) {
	select {
	case g.calls <- f:
	case <-g.ended:
	}
}

// loop owns the group. It keeps its thread: the thread is the ranks' parent, and its end, with this goroutine or with
// the process, makes the kernel kill them.
func (g *Group) loop() {
	runtime.LockOSThread()
	defer close(g.exits)
	defer close(g.ended)
	child := make(chan os.Signal, 1)
	signal.Notify(child, unix.SIGCHLD)
	defer signal.Stop(child)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for !g.closed {
		var (
			out  chan Exit
			next Exit
		)
		if len(g.queue) > 0 {
			out, next = g.exits, g.queue[0]
		}
		select {
		case out <- next:
			g.queue = g.queue[1:]
			continue
		case f := <-g.calls:
			f()
		case <-child:
			g.clock.lazy(time.Now()) // perhaps an adopted orphan, which only this process can reap
		case <-timer.C:
		}
		g.work()
		timer.Reset(g.clock.wait(time.Now()))
	}
}

func (g *Group) start(spec Spec, path string, env []string, err error, stdout, stderr io.Writer) int {
	var c *child
	switch {
	case err != nil:
	case g.stop != nil:
		err = ErrStopping
	default:
		c, err = spawn(spec, path, env)
	}
	if err != nil {
		code := exitNotStarted
		if e, ok := err.(*startError); ok {
			code = e.code
		}
		g.queue = append(g.queue, Exit{Process: spec.Process, Code: code, Err: err})
		return 0
	}
	r := &rank{spec: spec, child: c, pid: c.cmd.Process.Pid, file: path, pipes: 2}
	g.ranks = append(g.ranks, r)
	g.wg.Go(func() {
		c.cmd.Wait()
		g.post(func() { g.rankEnded(r) })
	})
	g.wg.Go(func() {
		pump(c.stdout, stdout)
		g.post(func() { r.pipes-- })
	})
	g.wg.Go(func() {
		pump(c.stderr, stderr)
		g.post(func() { r.pipes-- })
	})
	return r.pid
}

func (g *Group) rankEnded(r *rank) {
	r.ended = true
	r.exit = Exit{Process: r.spec.Process, Code: exitNotStarted}
	if s := r.child.cmd.ProcessState; s != nil {
		r.exit = status(r.spec.Process, s.Sys().(syscall.WaitStatus))
	}
	r.exit.File = r.file
	if r.child.stdin != nil {
		r.child.stdin.Close()
	}
	g.clock.now(time.Now())
}

func (g *Group) stopBy(termAt, killAt time.Time, polite bool, reply chan error) {
	if g.stop == nil {
		g.stop = &stop{sweep: sweep{killAt: killAt}, termAt: termAt, polite: polite}
	}
	if killAt.Before(g.stop.sweep.killAt) {
		g.stop.sweep.killAt = killAt
	}
	if termAt.Before(g.stop.termAt) {
		g.stop.termAt = termAt
	}
	if reply != nil {
		g.stop.replies = append(g.stop.replies, reply)
	}
	g.clock.now(time.Now())
}

// work does what is due: it reads the process table if it is time to, and queues the exits of finished ranks.
func (g *Group) work() {
	now := time.Now()
	if g.clock.due(now) {
		g.scan(now)
		g.clock.scanned(now, time.Now(), g.waiting())
	}
	g.ranks = slices.DeleteFunc(g.ranks, func(r *rank) bool { return g.through(r, now) })
}

// waiting reports whether something has to disappear without a notification.
func (g *Group) waiting() bool {
	return g.stop != nil || g.strays.termed || len(g.running()) < len(g.ranks)
}

// through reports whether the rank's last output has been passed on, and then queues its Exit.
func (g *Group) through(r *rank, now time.Time) bool {
	if r.clean.IsZero() {
		return false
	}
	if r.pipes > 0 {
		// Everything the rank started has ended, but its pipe is still open: in a process that escaped, or one that
		// received the descriptor. Neither that nor a writer that never returns may delay the Exit further.
		limit := r.clean.Add(g.cfg.Drain)
		if now.After(limit) {
			cut(r.child.stdout)
			cut(r.child.stderr)
		}
		if now.Before(limit.Add(killTimeout)) {
			return false
		}
		g.torn = true
	}
	g.queue = append(g.queue, r.exit)
	return true
}

// scan reads the process table, reaps adopted orphans, and presses on with everything that must end.
func (g *Group) scan(now time.Time) {
	none := childless()
	var table []Process
	var err error
	if !none {
		table, err = ReadTable()
	}
	if err != nil { // out of descriptors, most likely: what can be done without, and again soon
		for _, r := range g.ranks {
			if r.ended || g.stop != nil && now.After(g.stop.sweep.killAt) {
				unix.Kill(-r.pid, unix.SIGKILL)
			}
		}
		return
	}
	g.reap(table)
	leaders := map[int]bool{}
	for _, r := range g.ranks {
		leaders[r.pid] = true
	}
	owned := lineage(table, g.self, leaders, g.origin)

	for _, r := range g.ranks {
		if !r.ended {
			continue
		}
		left := living(owned[r.pid])
		switch {
		case !r.clean.IsZero():
		case len(left) == 0, r.sweep.expired(now):
			r.clean = now
		case g.stop == nil:
			r.sweep.press(left, g.self, now, g.cfg.Linger)
		}
	}
	if g.stop != nil {
		g.pressAll(owned, none, now)
		return
	}
	// Detached processes without a trace of their rank live as long as there are ranks.
	if left := living(owned[noRank]); len(g.running()) == 0 && len(left) > 0 && !g.strays.expired(now) {
		g.strays.press(left, g.self, now, g.cfg.Linger)
	} else {
		g.strays = sweep{}
	}
}

// pressAll continues a Stop and answers it when everything has ended: when there is no child, which is certain, or when
// two scans found nothing.
func (g *Group) pressAll(owned map[int][]Process, none bool, now time.Time) {
	s := g.stop
	var left []Process
	for _, ps := range owned {
		left = append(left, living(ps)...)
	}
	var err error
	switch {
	case len(left) > 0 && !s.sweep.expired(now):
		s.empty = 0
		if s.polite {
			s.polite = false
			g.signal(unix.SIGINT) // as a terminal does; a stopped process would never see it without CONT
			g.signal(unix.SIGCONT)
		}
		if !now.Before(s.termAt) || len(g.running()) == 0 {
			s.sweep.press(left, g.self, now, 0)
		}
		return
	case len(left) > 0:
		err = stuck(left)
		for _, r := range g.ranks {
			if !r.ended {
				r.exit = Exit{Process: r.spec.Process, Code: 128 + int(unix.SIGKILL), Signal: unix.SIGKILL}
			}
			cut(r.child.stdout)
			cut(r.child.stderr)
			g.queue = append(g.queue, r.exit)
			g.torn = true
		}
		g.ranks = nil
	default:
		// The table is not read atomically: a process that forked behind the reader's back shows the second time.
		if s.empty++; s.empty < 2 && !none || len(g.ranks) > 0 {
			return
		}
	}
	g.stop = nil
	for _, reply := range s.replies {
		reply <- err
	}
}

// signal signals the process groups of the ranks that run.
func (g *Group) signal(sig syscall.Signal) {
	for _, r := range g.running() {
		unix.Kill(-r.pid, sig)
	}
}

// running returns the ranks that run.
func (g *Group) running() []*rank {
	return slices.DeleteFunc(slices.Clone(g.ranks), func(r *rank) bool { return r.ended })
}

// origin finds the rank of a process by its environment.
func (g *Group) origin(pid int) (leader int, ok bool) {
	job, process, ok := readMark(pid)
	if !ok || job != g.cfg.Job {
		return 0, false
	}
	for _, r := range g.ranks {
		if r.spec.Process == process {
			return r.pid, true
		}
	}
	return 0, false
}

// reap reaps adopted orphans. Those of ranks are left to os/exec, and so are processes in our own session, which other
// parts of the daemon started.
func (g *Group) reap(table []Process) {
	for _, p := range table {
		if p.Parent != g.self.PID || !p.dead() || p.Session == g.self.Session ||
			slices.ContainsFunc(g.ranks, func(r *rank) bool { return r.pid == p.PID && !r.ended }) {
			continue
		}
		unix.Wait4(p.PID, nil, unix.WNOHANG, nil)
	}
}

// press sends TERM the first time (and CONT, or a stopped process would never see it), KILL when time is up.
func (s *sweep) press(left []Process, self Process, now time.Time, grace time.Duration) {
	switch {
	case !s.termed && s.killAt.IsZero():
		s.killAt = now.Add(grace)
		fallthrough
	case !s.termed && now.Before(s.killAt):
		s.termed = true
		kill(left, self, unix.SIGTERM, unix.SIGCONT)
	case !now.Before(s.killAt):
		s.termed = true
		kill(left, self, unix.SIGKILL)
	}
}

// expired reports whether KILL has been without effect for so long that it will have none.
func (s *sweep) expired(now time.Time) bool {
	return s.termed && now.After(s.killAt.Add(killTimeout))
}

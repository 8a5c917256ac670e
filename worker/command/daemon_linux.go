package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"gorun/rendezvous/resume"
	"gorun/topology/probe"
	"gorun/worker"
	"gorun/worker/cached"
	"gorun/worker/proc"
)

// reportTimeout is how long a daemon whose job has ended waits for its launcher to learn of it.
const reportTimeout = 15 * time.Second

// worker returns the action of a host in a job, nil if it is none.
func (p Process) worker(words []string) func(context.Context) error {
	switch {
	case len(words) == 3 && words[0] == "worker" && words[1] == "--sweep":
		return func(context.Context) error { return proc.Sweep(words[2]) }
	case len(words) == 2 && words[0] == "worker" && words[1] == "--step":
		return func(ctx context.Context) error { return p.stepProcess(ctx, "") }
	case len(words) == 3 && words[0] == "worker" && words[1] == "--step":
		return func(ctx context.Context) error { return p.stepProcess(ctx, words[2]) }
	case len(words) == 3 && words[0] == "bench" && words[1] == "--rank":
		return func(ctx context.Context) error { return p.benchRank(ctx, words[2]) }
	}
	if len(words) == 2 && words[0] == "worker" {
		if library, ok := strings.CutPrefix(words[1], rdmaCheck+"="); ok {
			return func(context.Context) error { return checkRDMA(library) }
		}
	}
	var rdma rdmaWords
	if len(words) > 0 && words[0] == "worker" {
		words, rdma = takeRDMA(words)
	}
	session := ""
	if n := len(words) - 1; n > 1 && resume.ValidID(words[n]) {
		words, session = words[:n], words[n]
	}
	with := connection{session: session, rdma: rdma}
	switch command := strings.Join(words, " "); {
	case command == "worker" && hasLauncher(), command == "worker --session" && session != "":
		return func(context.Context) error { return p.supervisor(with) }
	case command == "worker --resumable":
		return func(context.Context) error { return p.supervisor(connection{resumable: true, rdma: rdma}) }
	case command == "worker --relay" && session != "":
		return func(context.Context) error { return relayCommand(session) }
	case command == "worker --daemon", command == "worker --daemon --session" && session != "":
		return func(ctx context.Context) error { return p.daemon(ctx, with) }
	case command == "worker --daemon --resumable "+isIdle:
		return func(ctx context.Context) error { return p.daemon(ctx, connection{resumable: true, rdma: rdma}) }
	}
	return nil
}

// hasLauncher reports whether a launcher may be at the other end of standard input and output. A person who tries the
// command would get messages that are not for people.
func hasLauncher() bool {
	var in unix.Stat_t
	if err := unix.Fstat(0, &in); err != nil || term.IsTerminal(1) {
		return false
	}
	return in.Mode&unix.S_IFMT == unix.S_IFIFO || in.Mode&unix.S_IFMT == unix.S_IFSOCK
}

// connection is how launchers reach a daemon, other than by its standard input alone.
type connection struct {
	resumable bool   // standard input delivers a socket for them, once there is a job
	session   string // the name of a socket on which the stream that began on standard input can be resumed
	rdma      rdmaWords
}

// supervisor runs the daemon. It does not share the launcher's handling of signals: the launcher decides what is
// stopped when.
func (p Process) supervisor(with connection) error {
	// The very same file, even if its name belongs to a newer build by now.
	cmd := &exec.Cmd{Path: "/proc/self/exe", Args: []string{proc.DaemonName, "worker", "--daemon"}, Env: p.Env}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	if with.rdma.wanted {
		defer preferRDMA(cmd, with.rdma.library)()
	}
	switch {
	case with.resumable:
		cmd.Args = append(cmd.Args, "--resumable", isIdle)
		defer surviveHangUp()()
	case with.session != "":
		cmd.Args = append(cmd.Args, "--session", with.session)
		defer surviveHangUp()()
	}
	code, err := proc.Guard(context.Background(), cmd)
	if err != nil {
		return fmt.Errorf("guard daemon: %w", err)
	}
	if code > 128 {
		fmt.Fprintf(os.Stderr, "the daemon was killed by signal %d\n", code-128)
	}
	return ExitStatus(code)
}

// The last argument of a resident daemon's child shows in the process table whether it has a job.
const (
	isIdle = "idle"
	isBusy = "busy"
)

// showAs overwrites the last argument in the memory where the kernel reads the arguments.
func showAs(text string) {
	if said := os.Args[len(os.Args)-1]; said == isIdle || said == isBusy {
		copy(unsafe.Slice(unsafe.StringData(said), len(said)), text)
	}
}

// surviveHangUp keeps this process alive when it writes to a launcher, or to a resident daemon, that is gone.
func surviveHangUp() (stop func()) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, unix.SIGPIPE) // caught, not ignored: that would be inherited
	return func() { signal.Stop(c) }
}

func (p Process) daemon(ctx context.Context, with connection) error {
	defer surviveHangUp()() // there are ranks to end then
	ctx, release, err := proc.Lifeline(ctx)
	if err != nil {
		return fmt.Errorf("hold lifeline: %w", err)
	}
	defer release()
	if p.getenv("GOGC") == "" {
		debug.SetGCPercent(400) // the heap is some megabytes; a start would collect it repeatedly
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this binary: %w", err)
	}
	exe = cmp.Or(with.rdma.exe, exe)
	tending, stop := context.WithCancel(ctx)
	var cache sync.WaitGroup
	cache.Go(func() { cached.Tend(tending, exe) })
	defer func() { stop(); cache.Wait() }()
	cfg := worker.Config{In: os.Stdin, Out: os.Stdout, Version: p.Version, Exe: exe, NoRDMA: with.rdma.missing, Env: p.Env,
		Report: func(text string) { report("/dev/log", text) }}
	record := make(chan os.Signal, 1)
	signal.Notify(record, unix.SIGUSR2)
	defer signal.Stop(record)
	cfg.Record = record
	cfg.State, _ = StateDir(p.getenv) // without a home nothing is kept
	switch {
	case with.resumable:
		return serveJobs(ctx, cfg)
	case with.session != "":
		socket, err := listenFor(with.session)
		if err != nil {
			return err
		}
		ended := make(chan struct{})
		go func() { // reads standard input, which cannot be interrupted
			defer close(ended)
			relay(sessionOf(with.session), os.Stdin, os.Stdout)
			os.Stdout.Close() // ssh may be waiting for that
		}()
		stream := resume.NewRelay()
		cfg.LauncherLease = worker.NewLauncherLease()
		err = serveJob(ctx, cfg, socket, stream, leased(resume.LoginTimeouts, cfg.LauncherLease))
		select {
		case <-ended: // the last messages are sent
		case <-time.After(relayCloseTimeout):
		}
		return err
	}
	cfg.LauncherLease = worker.NewLauncherLease() // its peers hear from it when the launcher is silent; it ends with its input
	return worker.Run(ctx, cfg)
}

// serveJobs is the daemon of one job after the other, as its resident daemon requests.
func serveJobs(ctx context.Context, cfg worker.Config) error {
	waiting, err := resume.Wait(os.Stdin)
	if err != nil {
		return err
	}
	defer waiting.Close()
	probe.Prepare() // while there is time
	cfg.Seen = probe.Fingerprint("/")
	for {
		before := condition()
		socket, timeouts, err := waiting.Receive(ctx)
		if errors.Is(err, resume.ErrNoJob) {
			return nil
		}
		if err != nil {
			return err
		}
		showAs(isBusy)
		cfg.LauncherLease = worker.NewLauncherLease()
		waits := leased(resume.ResidentTimeouts, cfg.LauncherLease)
		if timeouts > 0 { // another launcher may take over
			waits.Broken, waits.Orphan = timeouts, timeouts
		}
		stream := resume.NewRelay()
		cfg.Another = stream.Next
		if err := serveJob(ctx, cfg, socket, stream, waits); err != nil || ctx.Err() != nil || !reusable(before) {
			return err
		}
		showAs(isIdle)
		if err := waiting.Free(); err != nil {
			return nil // the resident daemon is gone
		}
	}
}

// state is what a job may leave behind in its daemon.
type state struct {
	goroutines int
	cpus       unix.CPUSet
	nice       int
	limits     [unix.RLIMIT_RTTIME + 1]unix.Rlimit // by resource; one marks what ranks start: see worker/proc
}

func condition() (s state) {
	s.goroutines = runtime.NumGoroutine()
	self := os.Getpid() // the thread that others mean by the process's number
	unix.SchedGetaffinity(self, &s.cpus)
	s.nice, _ = unix.Getpriority(unix.PRIO_PROCESS, self)
	for i := range s.limits {
		unix.Getrlimit(i, &s.limits[i])
	}
	return s
}

const (
	// maxKept is how much memory a daemon that waits for another job may hold.
	maxKept = 48 << 20
	// unwinding is how long finished goroutines may take to end.
	unwinding = 100 * time.Millisecond
)

// reusable reports whether a daemon whose job is over may take another one. A job that was bound to CPUs, used much
// memory, left anything running, or changed what ranks inherit (their parent's niceness and limits) has used its daemon
// up.
func reusable(before state) bool {
	for deadline := time.Now().Add(unwinding); runtime.NumGoroutine() > before.goroutines; time.Sleep(unwinding / 50) {
		if time.Now().After(deadline) {
			return false
		}
	}
	now := condition()
	now.goroutines = before.goroutines
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return now == before && memory.Sys-memory.HeapReleased <= maxKept
}

// serveJob is the daemon of a job whose launcher connects to a socket.
func serveJob(ctx context.Context, cfg worker.Config, socket net.Listener, stream *resume.Relay,
	timeouts resume.Timeouts) error {
	cfg.In, cfg.Out, cfg.Flush = stream, stream, stream.Flush
	running, ended := context.WithCancel(context.WithoutCancel(ctx))
	var serving sync.WaitGroup
	serving.Go(func() { resume.Serve(running, socket, stream, timeouts) })
	err := worker.Run(ctx, cfg)
	if ctx.Err() != nil {
		stream.Close(relayCloseTimeout) // nothing cleans up after a daemon without a supervisor: it does not stay for long
	} else {
		stream.Close(reportTimeout)
	}
	ended()
	serving.Wait()
	return err
}

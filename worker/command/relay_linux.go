package command

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gorun/rendezvous/resume"
	"gorun/worker"
	"gorun/worker/proc"
)

// A launcher that logged in by ssh reaches the daemon of its job like this: the daemon has a socket, as in a cluster,
// and the process that ssh starts copies bytes between that and the connection. At first this is the daemon itself,
// later `gorun worker --relay`.

// leased returns timeouts that a lease extends. How long it takes the launcher to connect again, on a busy machine or a
// broken network, is unknown, so the daemon waits while other hosts hear the launcher.
func leased(t resume.Timeouts, lease *worker.LauncherLease) resume.Timeouts {
	t.Silent, t.Extend, t.Connected = lease.Limit, lease.Extend, lease.Hears
	return t
}

// relayCloseTimeout is how long the last messages may take.
const relayCloseTimeout = 2 * time.Second

// sessionOf returns the session of the daemon's socket.
func sessionOf(id string) resume.Session { return resume.Session{Cluster: "ssh", ID: id, Slots: 1} }

func listenFor(session string) (net.Listener, error) {
	f, err := sessionOf(session).Listen()
	if err != nil {
		return nil, err
	}
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("listen for launcher: %w", err)
	}
	return l, nil
}

// relayCommand connects to a running daemon.
func relayCommand(session string) error {
	defer surviveHangUp()()
	if !awaitDaemon(sessionOf(session), os.Stdin) {
		return ExitStatus(255) // the launcher is gone
	}
	switch err := relay(sessionOf(session), os.Stdin, os.Stdout); {
	case errors.Is(err, errReplaced):
		return ExitStatus(255) // ssh's status for a broken connection: any other is the daemon's
	case err != nil:
		return notHere(started())
	}
	return nil
}

// recently is how long after its start a host may be taken for one that was started again during a job.
const recently = 10 * time.Minute

// notHere reports that this host has no daemon of the job, most likely because it was started a short time ago.
func notHere(since time.Duration) error {
	const gone = "the daemon of the job is not on this host any more"
	if since <= 0 || since > recently {
		return errors.New(gone)
	}
	return fmt.Errorf("%s, which was started %v ago", gone, since.Round(time.Second))
}

// started returns how long ago this host, or this container, started; 0 if that is not known.
func started() time.Duration {
	first, ok := proc.Read(1)
	var now unix.Timespec
	if !ok || unix.ClockGettime(unix.CLOCK_BOOTTIME, &now) != nil {
		return 0
	}
	return time.Duration(now.Nano()) - time.Duration(first.Born)*proc.Tick
}

// awaitDaemon waits for the socket of a daemon that is still starting, which takes seconds on a busy host or a slow disk:
// a launcher that has heard nothing for that long logs in again. It returns false if the launcher has hung up meanwhile,
// as it does once it has logged in a third time: this relay must not take the place of that one.
func awaitDaemon(session resume.Session, in *os.File) bool {
	waited := false
	for starts := starting(session.ID); !session.Lives() && starts(); waited = true {
		if hungUp(in) {
			return false
		}
		time.Sleep(50 * time.Millisecond)
	}
	return !waited || !hungUp(in)
}

// starting looks for the supervisor of a session, or for its daemon, and returns a function that reports whether that
// process runs.
func starting(id string) func() bool {
	runs := func(name string) bool {
		text, _ := os.ReadFile(name) // empty if the process has ended
		return strings.HasSuffix(string(text), "\x00--session\x00"+id+"\x00")
	}
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, name := range names {
		var owner unix.Stat_t
		if unix.Stat(filepath.Dir(name), &owner) == nil && owner.Uid == uint32(os.Geteuid()) && runs(name) {
			return func() bool { return runs(name) }
		}
	}
	return func() bool { return false }
}

// hungUp reports whether the other end of a pipe or a socket is closed, also while there is something to read.
func hungUp(in *os.File) bool {
	poll := []unix.PollFd{{Fd: int32(in.Fd()), Events: unix.POLLRDHUP}}
	_, err := unix.Poll(poll, 0)
	return err == nil && poll[0].Revents&(unix.POLLHUP|unix.POLLRDHUP) != 0
}

// errReplaced means that another connection leads to the daemon now. That may be a delayed one that the launcher has
// given up; then the launcher has to connect again.
var errReplaced = errors.New("another connection has taken this one's place")

// relay copies bytes between a launcher and the daemon of its job until one of them closes. If it is the launcher, the
// daemon is notified: most likely no launcher will return. An error other than errReplaced means that there is no such
// daemon.
func relay(session resume.Session, in io.Reader, out io.Writer) error {
	line, err := session.Dial()
	if err != nil {
		return err
	}
	defer line.Close()
	launcher, daemon := make(chan struct{}), make(chan error, 1)
	go func() { // a read from a pipe cannot be interrupted, so it is not waited for
		io.Copy(line, in)
		close(launcher)
	}()
	go func() {
		_, err := io.Copy(out, line)
		daemon <- err
	}()
	select {
	case <-launcher:
	case err := <-daemon:
		if err == nil && session.Lives() {
			return errReplaced
		}
		if err == nil {
			return nil
		}
		select { // the launcher reads nothing more, but its last messages may be in flight
		case <-launcher:
		case <-time.After(relayCloseTimeout):
		}
	}
	line.Orphan()
	return nil
}

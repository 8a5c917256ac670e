package command

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"gorun/rendezvous/resume"
	"gorun/worker"
)

// How a launcher that logged in by ssh speaks with the daemon of its job: the daemon has a socket, as those of standing
// daemons have, and whatever ssh starts passes bytes between that and the connection. At first this is the daemon
// itself, later `gorun worker --relay`.

// relayPatience is short, because a launcher that lives notices the end of its connection, and connects again. How long
// that takes on a busy machine, or in a network that is down, nobody knows: while other hosts hear it, it is waited for.
func relayPatience(lease *worker.LauncherLease) resume.Timeouts {
	return resume.Timeouts{First: 20 * time.Second, Broken: 2 * time.Second, Orphan: 2 * time.Second,
		Silent: lease.Limit, Extend: lease.Extend, Connected: lease.Hears}
}

// relayFarewell is how long the last words may take.
const relayFarewell = 2 * time.Second

// sessionOf is how the daemon's socket is found.
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

// relayCommand leads to a daemon that runs.
func relayCommand(session string) error {
	defer surviveStderr()()
	switch err := relay(sessionOf(session), os.Stdin, os.Stdout); {
	case errors.Is(err, errReplaced):
		return ExitStatus(255) // as ssh says of a connection that broke: any other status is the daemon's end
	case err != nil:
		return errors.New("the daemon of the job is not on this host any more")
	}
	return nil
}

// errReplaced is that another connection leads to the daemon now. That may be one that the launcher has given up, and that was slow to
// come: then the launcher has to connect again.
var errReplaced = errors.New("another connection has taken this one's place")

// relay passes bytes between a launcher and the daemon of its job until one of them hangs up. If it is the launcher, the
// daemon is told: most likely nobody will come back. An error other than errReplaced says that there is no such daemon.
func relay(session resume.Session, in io.Reader, out io.Writer) error {
	line, err := session.Dial()
	if err != nil {
		return err
	}
	defer line.Close()
	launcher, daemon := make(chan struct{}), make(chan error, 1)
	go func() { // a read from a pipe cannot be interrupted: not waited for
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
		select { // the launcher takes nothing any more, but its last words may be under way
		case <-launcher:
		case <-time.After(relayFarewell):
		}
	}
	line.Orphan()
	return nil
}

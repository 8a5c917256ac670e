package talk

import (
	"context"
	"io"
	"time"

	"gorun/rendezvous/liveness"
)

// Dialer starts `gorun worker` on a host.
type Dialer interface {
	Dial(ctx context.Context, host string) (*Daemon, error)
}

// Adopter is a Dialer that can take over a daemon which another launcher has started.
type Adopter interface {
	// Adopt takes over the daemon of a session. silence is how long the host may fail to answer, 0 for the default.
	Adopt(ctx context.Context, host, session string, silence time.Duration) (*Daemon, error)
}

// Daemon is a started daemon: its standard streams, and its end. Close and Wait are always set.
type Daemon struct {
	In  io.WriteCloser
	Out io.Reader
	// LocalIP is the address at which the launcher reached the host, "" if it is the launcher's own.
	LocalIP string
	// Remote is false for the launcher's own machine.
	Remote bool
	// Session identifies the daemon for another launcher that takes it over, "" if none can.
	Session string
	Identity

	// Close ends the connection at once; the daemon, if it lives, then stops its job.
	Close func() error
	// Wait returns when the daemon has ended, with what it last wrote to standard error.
	Wait func() (stderr string, err error)
	// Away returns the state of a connection that is renewed when it breaks. It is nil for a daemon that ends with its
	// connection.
	Away func() liveness.Line
	// Ended reports, after Wait, whether the daemon itself has ended, so that the host is there. It is nil if Wait shows
	// that.
	Ended func() bool
	// Sweep ends, after Wait, what a job left on the host if daemon and supervisor were killed. It is nil if others do.
	Sweep func(ctx context.Context, job string) error
}

// Identity is what tells a host from others that describe their machine in the same words.
type Identity struct {
	HostKey string // of its sshd, "" if unknown
	// Own is true if the host is one of its own in any case: a scheduler or a cluster names it, or the user does by an
	// address of the loopback, which is how one machine stands for several.
	Own bool
}

// Same reports whether two hosts are one machine under two names. machine and other are what their daemons call it.
func (i Identity) Same(machine string, j Identity, other string) bool {
	return machine != "" && machine == other && !i.Own && !j.Own && (i.HostKey == "" || j.HostKey == "" || i.HostKey == j.HostKey)
}

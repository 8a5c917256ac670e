package ssh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	gossh "golang.org/x/crypto/ssh"
)

// Conn is a login on one host.
type Conn struct {
	host          string
	client        *Client
	transport     transport
	local, remote net.Addr
	key           string                // of the host's sshd, "" if unknown
	raw           *greeting             // nil if the host is reached through others
	heard         func() time.Time      // when something was last received from the host; nil if unknown
	verdict       atomic.Pointer[Error] // why it was closed here
	closed        sync.Once
}

// transport starts commands on a host: over a connection of ours, or with the system's ssh.
type transport interface {
	start(ctx context.Context, command string) (*Session, error)
	close() error
}

// LocalAddr returns this end of the connection, nil when it goes through a bastion or a program.
func (c *Conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the host's end of the connection, nil when it goes through a bastion or a program.
func (c *Conn) RemoteAddr() net.Addr { return c.remote }

// HostKey returns the key by which the host's sshd identified itself, "" if only a program in place of the built-in client
// knows it.
func (c *Conn) HostKey() string { return c.key }

// Blind reports that nothing is known of the host before a session has started.
func (c *Conn) Blind() bool { _, by := c.transport.(external); return by }

// HungUp reports whether the host itself closed the connection in order: its sshd has ended, and perhaps all of its
// processes. It returns false for a connection that broke, and for one through other machines, which may close it at
// any time. said is what a session left on standard error, the only evidence from a program in place of the built-in
// client.
func (c *Conn) HungUp(said string) bool {
	if e, ok := c.transport.(external); ok {
		return e.hungUp(said)
	}
	return c.raw != nil && c.raw.ended.Load()
}

// Close ends the connection and all its sessions at once. Programs started on the host see the end of their input; they
// are not killed.
func (c *Conn) Close() error {
	var err error
	c.closed.Do(func() { err = c.transport.close() })
	return err
}

// lastWrites is how long programs and machines on the way to a host may take to pass on what was written to them.
const lastWrites = time.Second

// Finish closes the input of a session of this connection, and the connection once what was written before is on its
// way. It does not wait for that.
func (c *Conn) Finish(s *Session) error {
	if c.RemoteAddr() != nil { // directly: the kernel passes it on
		return c.Close()
	}
	time.AfterFunc(lastWrites, func() { c.Close() })
	return s.Stdin.Close()
}

const (
	// silenceLimit is how long a host may be silent while gorun starts a command there and asks for answers: one of the
	// two may have got another address. Once the command runs, its user watches the connection. It is no limit of
	// liveness.Timing, because it ends a connection, not a host: no daemon runs yet that could be suspected, and a start
	// logs in again until --start-timeout.
	silenceLimit = 10 * time.Second
	// silenceLooks is how often watch checks in that time.
	silenceLooks = 20
)

// watch closes the connection if it is silent for too long, until stop is called.
func (c *Conn) watch() (stop func()) {
	if c.heard == nil {
		return func() {}
	}
	over := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		limit := c.client.silence
		tick := time.NewTicker(limit / silenceLooks)
		defer tick.Stop()
		since, looked := time.Now(), time.Now()
		asked := make(chan struct{}, 1) // holds a token while an answer is pending
		for {
			select {
			case <-over:
				return
			case <-tick.C:
			}
			now := time.Now()
			if now.Sub(looked) > limit/4 { // this machine was paused
				since = now
			}
			looked = now
			if last := c.heard(); last.After(since) {
				since = last
			}
			switch quiet := now.Sub(since); {
			case quiet >= limit:
				c.closeWith(&Error{Host: c.host, Step: StepStart, Err: broken{fmt.Errorf("nothing came from the host for %v", limit)},
					Hint: "is the host up, and does this machine have another address now?"})
				return
			case quiet >= limit/4:
				select {
				case asked <- struct{}{}:
					c.client.running.Go(func() { c.ping(); <-asked }) // ends with the connection at the latest
				default:
				}
			}
		}
	})
	return func() {
		close(over)
		watching.Wait()
	}
}

// closeWith closes the connection for a reason.
func (c *Conn) closeWith(why *Error) {
	c.verdict.CompareAndSwap(nil, why)
	c.Close()
}

// cause returns that reason, if there is one, and err otherwise.
func (c *Conn) cause(err error) error {
	if why := c.verdict.Load(); why != nil {
		return why
	}
	return err
}

// Session is a command that runs on a host. Stdout and Stderr share one window of flow control: a caller that reads
// only one of them may find it stalled by the other.
type Session struct {
	Stdin  io.WriteCloser
	Stdout io.Reader
	Stderr io.Reader

	host string
	ctx  context.Context // its cause is why the session was cut off
	stop func() bool
	kill func() error
	wait func() (int, error)
	// blame interprets the last output of a program in place of the built-in client, and determines the step; may be
	// nil.
	blame func(said string) *Error

	waited sync.Once
	code   int
	err    error
}

// Wait waits for the command and returns its exit code, 128+n if signal n killed it. An error means that the code is
// not known, because the connection was lost or the session was cancelled. Unread output is discarded.
func (s *Session) Wait() (int, error) {
	s.waited.Do(func() {
		s.code, s.err = s.wait()
		s.stop()
		if s.err != nil && s.ctx.Err() != nil {
			s.err = context.Cause(s.ctx)
		}
	})
	return s.code, s.err
}

// Start runs a command with the user's login shell. The session lives no longer than ctx: when that is cancelled, the
// whole connection is closed, as a session on a stalled connection cannot be ended in an orderly way.
func (c *Conn) Start(ctx context.Context, command string) (*Session, error) {
	stop := context.AfterFunc(ctx, func() { c.Close() })
	s, err := c.transport.start(ctx, command)
	if err == nil && ctx.Err() == nil {
		s.host, s.ctx, s.stop, s.kill = c.host, ctx, stop, c.Close
		return s, nil
	}
	stop()
	if ctx.Err() != nil {
		c.Close()
		err = context.Cause(ctx)
	}
	if s != nil {
		s.wait() // no other goroutine will
	}
	e := &Error{Host: c.host, Step: StepOpenChannel, Err: err}
	var rejected *gossh.OpenChannelError
	if errors.As(err, &rejected) {
		e.Err = errors.New(oneLine(rejected.Message))
		e.Hint = "sshd refuses another session: see MaxSessions in its configuration"
	}
	return nil, e
}

// builtin is a connection made by this package.
type builtin struct {
	client  *gossh.Client
	entered func() // called when sshd no longer counts the login as unauthenticated
}

func (b builtin) close() error {
	b.entered()
	return b.client.Close()
}

func (b builtin) start(_ context.Context, command string) (*Session, error) {
	s, err := b.open(command)
	if err != nil && !b.answers() {
		return nil, broken{errors.New("connection lost")}
	}
	return s, err
}

// answers requests an answer from the host and waits for it. The answer means that the host has consumed everything
// sent before. It returns false if the connection has ended.
func (b builtin) answers() bool {
	_, _, err := b.client.SendRequest("keepalive@openssh.com", true, nil)
	return err == nil
}

func (b builtin) open(command string) (*Session, error) {
	session, err := b.client.NewSession()
	b.entered()
	if err != nil {
		return nil, err
	}
	s := &Session{wait: func() (int, error) {
		defer session.Close()
		return exitCode(session.Wait())
	}}
	s.Stdin, err = session.StdinPipe()
	if err == nil {
		s.Stdout, err = session.StdoutPipe()
	}
	if err == nil {
		s.Stderr, err = session.StderrPipe()
	}
	if err == nil {
		err = session.Start(command)
	}
	if err != nil {
		session.Close()
		return nil, err
	}
	return s, nil
}

// exitCode interprets the ssh library's errors: only a command without a result is one.
func exitCode(err error) (int, error) {
	var exit *gossh.ExitError
	var missing *gossh.ExitMissingError
	switch {
	case err == nil:
		return 0, nil
	case errors.As(err, &exit):
		return exit.ExitStatus(), nil // 128+n for a signal
	case errors.As(err, &missing):
		return -1, broken{fmt.Errorf("connection lost: %w", io.ErrUnexpectedEOF)}
	}
	return -1, broken{fmt.Errorf("connection lost: %w", err)}
}

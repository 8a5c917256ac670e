package standing

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"

	"gorun/collective/tcp"
	"gorun/rendezvous/keytls"
	"gorun/rendezvous/resume"
	"gorun/rendezvous/wire"
)

// RefusedError is a daemon's refusal.
type RefusedError struct {
	Text, Hint string
	// Small means that even an idle cluster has too few slots for the job.
	Small bool
}

func (e *RefusedError) Error() string { return e.Text }

// Client talks to the daemons of a cluster.
type Client struct {
	Key     Key
	Version string
	// Reread reads the key again when a daemon does not hold it any more, since a job may outlive it; nil if it cannot change.
	Reread func() (Key, error)

	knownHostTimeout time.Duration // how long a host has to answer, 0 for as long as a connection may take
	startTimeout     time.Duration // in place of the constant, for tests
}

// Reserve requests slots from the daemon at addr, or from the one it redirects to, and waits for them. It calls waiting
// with what it waits for, including a new queue holder after the old one is lost.
func (c Client) Reserve(ctx context.Context, addr string, r wire.Reserve, waiting func(text string)) (*Lease, error) {
	r.Version = c.Version
	if waiting == nil {
		waiting = func(string) {}
	}
	fail := func(err error) (*Lease, error) {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, fmt.Errorf("reserve slots at %s: %w", addr, err)
	}
	for q := newLookup(addr); ; {
		asker := c
		if q.at != addr {
			asker.knownHostTimeout = timing.ConnectTimeout // the host it was redirected to may be gone
		}
		g, next, err := asker.reserve(ctx, q.at, &r, func(m *wire.Queued) {
			q.queued(m.Others)
			waiting(m.Text)
		})
		if g != nil {
			return newLease(c, addr, r, g), nil
		}
		if ctx.Err() != nil { // then the broken connection proves nothing about the daemon
			return fail(err)
		}
		rest, text := true, ""
		if err != nil {
			text, err = q.failed(time.Now(), err)
		} else {
			rest, err = q.sent(time.Now(), next)
		}
		if text != "" {
			waiting(text)
		}
		if err != nil || ctx.Err() != nil || rest && !resume.Pause(ctx, retry) {
			return fail(err)
		}
	}
}

// Preview returns the slots that a job would get if the cluster were idle. It does not wait, and delays no one.
func (c Client) Preview(ctx context.Context, addr string, r wire.Reserve) ([]wire.Share, error) {
	known, err := c.Members(ctx, addr)
	if err != nil {
		return nil, err
	}
	shares, err := inIdle(known.Members, r)
	if err != nil {
		return nil, fmt.Errorf("place at %s: %w", addr, &RefusedError{err.Error(), reserveHint, true})
	}
	return shares, nil
}

// Hold keeps slots that the job has already, r.Held, and registers them with the queue holder in the background.
func (c Client) Hold(addr string, r wire.Reserve) *Lease {
	r.Version = c.Version
	return newLease(c, addr, r, nil)
}

// grant is what the queue holder granted, and the connection on which it may change it.
type grant struct {
	conn net.Conn
	in   *wire.Reader
	wire.Granted
}

func (c Client) reserve(ctx context.Context, addr string, r *wire.Reserve, waiting func(*wire.Queued)) (g *grant, next string, err error) {
	conn, err := c.dial(ctx, addr)
	if err != nil {
		return nil, "", err
	}
	if tcp, ok := conn.NetConn().(*net.TCPConn); ok {
		tcp.SetKeepAliveConfig(queueKeepAlive)
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	defer func() {
		if g == nil {
			conn.Close()
		}
	}()
	if err := wire.NewWriter(conn).Write(r); err != nil {
		return nil, "", err
	}
	asked := false // the daemon asked whether the launcher takes the slots
	for in := wire.NewReader(conn); ; {
		msg, err := in.Read()
		if err != nil && asked {
			return nil, addr, nil // the confirmation came too late
		}
		if err != nil {
			return nil, "", broken(err)
		}
		switch msg := msg.(type) {
		case *wire.Queued:
			if waiting != nil {
				waiting(msg)
			}
		case *wire.Granted:
			if asked = asked || msg.Ask; msg.Ask {
				wire.NewWriter(conn).Write(&wire.Granted{}) // if it fails, the next read fails too
				continue
			}
			return &grant{conn, in, *msg}, "", nil
		case *wire.Elsewhere:
			return nil, msg.Addr, nil
		case *wire.Refused:
			return nil, "", &RefusedError{msg.Text, msg.Hint, msg.Small}
		default:
			return nil, "", fmt.Errorf("unexpected %T", msg)
		}
	}
}

// Jobs lists the jobs of the cluster. If the queue holder does not answer, the daemon at addr answers from what it
// knows.
func (c Client) Jobs(ctx context.Context, addr string) (*wire.Jobs, error) {
	first := addr
	for range redirects {
		msg, err := c.ask(ctx, addr, &wire.AskJobs{})
		if err != nil && addr != first {
			return c.Members(ctx, first)
		}
		c.knownHostTimeout = timing.ConnectTimeout // the host it was redirected to may be gone
		if err != nil {
			return nil, fmt.Errorf("ask %s for jobs: %w", addr, err)
		}
		switch msg := msg.(type) {
		case *wire.Jobs:
			return msg, nil
		case *wire.Elsewhere:
			addr = msg.Addr
		default:
			return nil, fmt.Errorf("ask %s for jobs: unexpected %T", addr, msg)
		}
	}
	return nil, fmt.Errorf("ask %s for jobs: the daemons do not agree on who keeps the queue", addr)
}

// Members returns the hosts that the daemon at addr sees.
func (c Client) Members(ctx context.Context, addr string) (*wire.Jobs, error) {
	known, err := expect[*wire.Jobs](c.ask(ctx, addr, &wire.AskJobs{Here: true}))
	if err != nil {
		return nil, fmt.Errorf("ask %s for hosts: %w", addr, err)
	}
	return known, nil
}

func (c Client) ask(ctx context.Context, addr string, m wire.Message) (wire.Message, error) {
	conn, err := c.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, limited := ctx.Deadline(); !limited {
		conn.SetDeadline(time.Now().Add(handshakeTimeout))
	}
	if err := wire.NewWriter(conn).Write(m); err != nil {
		return nil, err
	}
	answer, err := wire.NewReader(conn).Read()
	return answer, broken(err)
}

// expect returns an answer of the type that was asked for, or why there is none.
func expect[A wire.Message](msg wire.Message, err error) (answer A, _ error) {
	switch msg := msg.(type) {
	case A:
		return msg, nil
	case *wire.Refused:
		return answer, &RefusedError{msg.Text, msg.Hint, msg.Small}
	case nil:
		return answer, broken(err)
	}
	return answer, fmt.Errorf("unexpected %T", msg)
}

// dial connects, and both sides prove that they hold the key.
func (c Client) dial(ctx context.Context, addr string) (*tls.Conn, error) {
	conn, err := c.dialWith(ctx, addr, c.Key)
	if errors.Is(err, ErrKey) && c.Reread != nil {
		if key, wrong := c.Reread(); wrong == nil {
			return c.dialWith(ctx, addr, key)
		}
	}
	return conn, err
}

func (c Client) dialWith(ctx context.Context, addr string, key Key) (*tls.Conn, error) {
	channel, err := key.channel()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	for pause := retry; ; pause *= 2 {
		conn, err := c.shake(ctx, addr, channel)
		if !hungUp(err) || pause > 8*retry || !resume.Pause(ctx, pause) {
			return conn, broken(err)
		}
	}
}

// shake tries one handshake. A daemon closes the connection when too many newer ones, from this address or in all, have
// not authenticated either.
func (c Client) shake(ctx context.Context, addr string, channel *keytls.Ring) (*tls.Conn, error) {
	raw, err := (&net.Dialer{KeepAliveConfig: keepAlive, Timeout: c.knownHostTimeout, Control: tcp.SmallSegments}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	conn, _, err := channel.Client(ctx, raw)
	if err != nil {
		raw.Close()
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err.Error() == noProtocol.Error() {
		err = &RefusedError{Text: "the daemon is of another version, which this one cannot speak with", Hint: sameVersion}
	}
	return conn, err
}

// noProtocol is the alert of TLS of a peer that speaks another protocol (RFC 7301). crypto/tls returns it as a type of its own.
const noProtocol = tls.AlertError(120)

func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// ErrHungUp means that something answered at the daemon's address, and ended the connection.
var ErrHungUp = errors.New("the daemon hung up")

// broken explains what the end of a connection means here.
func broken(err error) error {
	if hungUp(err) {
		return ErrHungUp
	}
	return err
}

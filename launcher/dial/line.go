package dial

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"gorun/launcher/failure"
	"gorun/launcher/ssh"
	"gorun/launcher/talk"
	"gorun/rendezvous/liveness"
	"gorun/rendezvous/resume"
)

// A conversation over ssh outlives its connection. It is a stream of package resume: the daemon keeps its end at a
// socket on its host, and a later login carries the stream on from there. So a job survives a broken connection, and a
// new address of the host or of this machine. The conversation ends when the daemon ends, and ssh reports the daemon's
// exit status. While a host cannot be reached, the line tries again and again: package liveness decides how long each
// try may take, and when the host is lost.

const (
	// goodbye is how long it may take to let the daemon know that its launcher will not come back.
	goodbye = time.Second
	// lastWords is how long after the end of the output the exit status may arrive.
	lastWords = 2 * time.Second
)

// line is the launcher's end of the conversation.
type line struct {
	*resume.ResumableStream
	token  []byte                                    // proves to the daemon that this launcher carries the stream on
	again  func(ctx context.Context) (*login, error) // logs in once more; the login lives as long as ctx
	timing liveness.Timing
	prompt time.Duration // how long a login may take until the host answers
	blind  bool          // a login does not report when the host answers

	ctx    context.Context // ends with the line
	cancel context.CancelFunc
	ended  chan struct{}
	last   *login // the latest connection; others read it once the line has ended

	mu   sync.Mutex
	away liveness.Line
}

// login is one connection, to the daemon or to a relay that leads to it.
type login struct {
	In     io.WriteCloser
	Out    io.Reader
	Close  func() error
	Status func() (code int, err error) // waits for the end of the program; err if it is not known
	Stderr func() string                // after Status
	HungUp func() bool                  // whether the host itself closed it in order; nil if that is never known
	who    talk.Identity                // of the host
	first  bool                         // its program is the daemon itself
	blind  bool                         // it does not call the function of [ssh.OnAnswer]
	took   time.Duration                // that the login took

	reading resume.Moment // since when Read waits for output, zero while it does not
	over    chan struct{} // closed once its output has ended and Status has returned
	done    chan struct{} // closed once the stream has closed it
	finish  sync.Once
	timer   *time.Timer
}

// newLogin returns the login whose program has these streams, and whose status wait waits for.
func newLogin(in io.WriteCloser, out, complaints io.Reader, wait func() (int, error)) *login {
	stderr := &ssh.Said{Limit: 4 << 10}
	var drain sync.WaitGroup
	drain.Go(func() { io.Copy(stderr, complaints) })
	return &login{In: in, Out: out, Stderr: stderr.String, Status: func() (int, error) {
		code, err := wait()
		drain.Wait()
		return code, err
	}}
}

// openLine begins a conversation with the first login. It fails if ctx ends before the login has succeeded. If ctx ends
// later, the connection stays: the launcher closes the line, so that the daemon is notified.
func openLine(
	ctx context.Context, token []byte, t liveness.Timing, first, again func(context.Context) (*login, error),
) (*line, error) {
	d, end, err := lasting(ctx, first)
	if err != nil {
		return nil, err
	}
	l := newLine(token, d, t, again)
	context.AfterFunc(l.ctx, end)
	return l, nil
}

// newLine begins a conversation over the connection to a daemon.
func newLine(token []byte, first *login, t liveness.Timing, again func(context.Context) (*login, error)) *line {
	l := &line{
		ResumableStream: resume.New(),
		token:           token,
		again:           again,
		timing:          t,
		prompt:          t.LoginTimeout,
		blind:           first.blind,
		ended:           make(chan struct{}),
	}
	if !l.blind {
		l.prompt = t.AnswerTimeout
	}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	first.first = true
	go l.run(first)
	return l
}

// newSession returns a name for a daemon's session, which no other has, and the token that proves who continues it.
func newSession() (session string, token []byte, err error) {
	id := make([]byte, 8+resume.TokenSize)
	if _, err := rand.Read(id); err != nil {
		return "", nil, fmt.Errorf("make session: %w", err)
	}
	return hex.EncodeToString(id[:8]), id[8:], nil
}

// begun waits for the first byte of the daemon, and returns a reader that still has it. It fails if the connection
// breaks before that and no login finds the daemon again. If the daemon ended by itself, begun succeeds all the same,
// and Wait reports why.
func (l *line) begun(ctx context.Context) (io.Reader, error) {
	defer context.AfterFunc(ctx, func() { l.Close() })()
	out := bufio.NewReader(l)
	if _, err := out.Peek(1); err == nil {
		return out, nil
	}
	stderr, _ := l.Wait()
	if l.last.ownEnd() {
		return out, nil
	}
	l.Close()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return nil, fmt.Errorf("%w before the daemon said anything: %s", ssh.ErrBroken, failure.LastLine(stderr))
}

// Close ends the conversation, and with it the daemon.
func (l *line) Close() error {
	if !l.Over() && l.Connected() && l.ResumableStream.Close(goodbye) {
		select { // a program in place of the built-in client may have yet to pass it on
		case <-l.ended:
		case <-time.After(goodbye):
		}
	}
	l.Fail(net.ErrClosed)
	l.cancel()
	<-l.ended
	return nil
}

// Wait waits for the end of the line. It returns what login.end does for the last connection.
func (l *line) Wait() (string, error) {
	<-l.ended
	return l.last.end()
}

// run keeps the stream connected until it is over.
func (l *line) run(d *login) {
	defer close(l.ended)
	var carriers sync.WaitGroup
	defer carriers.Wait()
	for d != nil {
		l.last = d
		d = l.follow(d, &carriers)
	}
}

// follow lets a connection carry the stream until another one takes over, and returns that one; nil if the stream or
// the line is over.
func (l *line) follow(d *login, carriers *sync.WaitGroup) *login {
	carried := make(chan struct{})
	carriers.Go(func() {
		defer close(carried)
		l.carry(d)
	})
	present := resume.Carrier[*login]{Over: carried, Waits: d.reading.Get, SuspectAfter: l.timing.ReconnectAfter,
		Find: l.beside, Drop: (*login).discard}
	if next, found := present.Follow(l.ctx, l.ResumableStream); found {
		return next // Carry stops the present one
	}
	return l.mend(d)
}

// beside logs in a second time while the present connection is silent. Each try looks the host's name up anew: for some
// seconds after a host got another address, its name may lead to the former one, where nothing answers and nothing
// refuses.
func (l *line) beside(until context.Context, silent func() bool) (*login, bool) {
	for pause := l.timing.RetryMin; silent(); pause = l.longer(pause) {
		if d, err := l.once(until, func() {}); err == nil {
			return d, true
		}
		if !resume.Pause(until, pause) {
			break
		}
	}
	return nil, false
}

// longer returns the next pause between two tries.
func (l *line) longer(pause time.Duration) time.Duration { return min(pause*3/2, l.timing.RetryMax) }

// once tries to log in. The host must answer within l.prompt, and the login must succeed within LoginTimeout.
func (l *line) once(until context.Context, answered func()) (*login, error) {
	ctx, cancel := context.WithTimeout(until, l.timing.LoginTimeout)
	defer cancel()
	late := time.AfterFunc(l.prompt, cancel)
	defer late.Stop()
	return l.login(ssh.OnAnswer(ctx, func(bool) {
		late.Stop()
		answered()
	}))
}

// Away returns the state of the connection, zero while it stands.
func (l *line) Away() liveness.Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.away
}

func (l *line) note(what func(*liveness.Line)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	what(&l.away)
}

// login logs in, and gives up when until ends. The login that it returns lives as long as the line.
func (l *line) login(until context.Context) (*login, error) {
	d, end, err := lasting(until, l.again)
	if err == nil {
		context.AfterFunc(l.ctx, end)
	}
	return d, err
}

// lasting logs in by again, and gives up when until ends. The login that it returns outlives until: the caller ends it
// by end.
func lasting(until context.Context, again func(context.Context) (*login, error)) (d *login, end func(), err error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(until)) // keeps the function of ssh.OnAnswer
	keep := context.AfterFunc(until, cancel)
	began := time.Now()
	d, err = again(ctx)
	switch {
	case !keep() && err == nil:
		d.discard()
		return nil, nil, context.Cause(until)
	case err != nil:
		cancel()
		return nil, nil, err
	}
	d.took = time.Since(began)
	return d, cancel, nil
}

// mend replaces a connection that has ended. It returns the new one, nil if the stream or the line is over.
func (l *line) mend(d *login) *login {
	if l.Over() {
		return nil
	}
	// The exit of the program ends the conversation, unless it proves nothing about the daemon: a relay may have been
	// killed, and a system's ssh exits with 255 when its connection breaks.
	if code, err := d.Status(); err == nil && code != failure.ExitTransport && (d.first || code < 128) {
		l.Fail(io.EOF)
		return nil
	}
	now := time.Now()
	due := now
	if l.blind { // a login that is known to be slow
		due = now.Add(min(d.took, l.timing.LoginGrace))
	}
	l.note(func(a *liveness.Line) {
		*a = liveness.Line{Broken: now, Unanswered: due, Blind: l.blind, HungUp: d.HungUp != nil && d.HungUp()}
	})
	for pause := l.timing.RetryMin; l.ctx.Err() == nil; pause = l.longer(pause) {
		next, err := l.once(l.ctx, func() { l.note(func(a *liveness.Line) { a.Unanswered = time.Time{} }) })
		if err == nil {
			l.note(func(a *liveness.Line) { *a = liveness.Line{} })
			return next
		}
		l.note(func(a *liveness.Line) {
			if a.Unanswered.IsZero() {
				a.Unanswered = time.Now()
			}
		})
		resume.Pause(l.ctx, pause)
	}
	return nil
}

// end returns what the program wrote to standard error, and an error if its exit status is not known, or if it was the
// supervisor of the daemon and was killed.
func (d *login) end() (string, error) {
	code, err := d.Status()
	if err == nil && d.first && code > 128 && code != failure.ExitTransport {
		err = fmt.Errorf("its supervisor was killed by signal %d", code-128)
	}
	return d.Stderr(), err
}

// ownEnd reports whether this login started the daemon, and ended because the daemon did. (A system's ssh exits with
// 255 when its connection breaks.)
func (d *login) ownEnd() bool {
	code, err := d.Status()
	return err == nil && code != failure.ExitTransport && d.first
}

// carry lets a connection carry the stream, and waits for its end.
func (l *line) carry(d *login) {
	d.over, d.done = make(chan struct{}), make(chan struct{})
	if _, err := d.In.Write(l.token); err == nil {
		l.Carry(carrier{d}, carrier{d})
	}
	d.discard()
}

// discard ends a login and everything about it.
func (d *login) discard() {
	d.Close()
	d.Status()
}

// carrier is a login as the connection of a stream.
type carrier struct{ *login }

// Read records since when it waits. At the end of the output it waits for the exit status too, which shows whether the
// daemon has ended.
func (c carrier) Read(b []byte) (int, error) {
	c.reading.Set(time.Now())
	n, err := c.Out.Read(b)
	c.reading.Set(time.Time{})
	if err != nil {
		timer := time.AfterFunc(lastWords, func() { c.login.Close() })
		c.Status()
		timer.Stop()
		close(c.over)
	}
	return n, err
}

// Write reports an error only after Read has had time to find the reason, or after Close.
func (c carrier) Write(b []byte) (int, error) {
	n, err := c.In.Write(b)
	if err != nil {
		timer := time.NewTimer(lastWords)
		defer timer.Stop()
		select {
		case <-c.over:
		case <-c.done:
		case <-timer.C:
		}
	}
	return n, err
}

// Close implements net.Conn.
func (c carrier) Close() error {
	c.finish.Do(func() { close(c.done) })
	return c.login.Close()
}

// SetDeadline implements net.Conn. Package resume sets a deadline for the handshake, and removes it afterwards.
func (c carrier) SetDeadline(t time.Time) error {
	if c.timer != nil {
		c.timer.Stop()
	}
	if !t.IsZero() {
		c.login.timer = time.AfterFunc(time.Until(t), func() { c.login.Close() })
	}
	return nil
}

// The rest of net.Conn, which is not used.

func (c carrier) SetReadDeadline(t time.Time) error  { return c.SetDeadline(t) }
func (c carrier) SetWriteDeadline(t time.Time) error { return c.SetDeadline(t) }
func (c carrier) LocalAddr() net.Addr                { return nil }
func (c carrier) RemoteAddr() net.Addr               { return nil }

// Package talk is the conversation of a launcher with the daemon of one host, from the login to the daemon's last
// message. A Conversation reports what the daemon sends as events, and sends it what is in its mailbox. It decides
// nothing about the job: it knows when the host was last heard, when it was last spoken to, and how its daemon ends.
package talk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"gorun/launcher/failure"
	"gorun/launcher/plan"
	"gorun/launcher/ssh"
	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
)

// sweepLimit is how long a host may take to clean up behind a daemon that was killed.
const sweepLimit = 5 * time.Second

// Config is what all conversations of a job have in common.
type Config struct {
	Dial     Dialer
	Files    Files         // nil if hosts have what ranks run
	Python   Pythons       // nil if hosts have the packages of Python that ranks need
	Version  string        // of this binary; daemons of another version are refused
	Env      []string      // of the launcher; filtered for the ranks
	Interval time.Duration // between two messages that only show that the launcher is there
	Output   Output
	Watched  bool // a rank's output waits until the loop has handled its start
	// Note prints a line for the user, without a prefix.
	Note func(format string, args ...any)
}

// Output takes what ranks write.
type Output interface {
	Write(rank int, stream wire.OutputStream, data []byte)
}

// Event is what a conversation reports; exactly one of Msg, Err and Up is set.
type Event struct {
	Host    int
	From    *Conversation // nil for the present one of the host
	Up      bool          // the daemon has answered and got its job
	Session string        // of the daemon, with Up
	Msg     wire.Message
	Err     *failure.HostError // the last event of this host, unless that was Done

	seen chan<- struct{} // closed when the event was handled; nil if its sender does not wait
}

// Handled lets the sender of the event go on.
func (e Event) Handled() {
	if e.seen != nil {
		close(e.seen)
	}
}

// Conversation is the conversation with one daemon. Its goroutines: Talk (dial, then read) and the writer.
type Conversation struct {
	conf   Config
	Queue  Mailbox
	Heard  Heard
	Spoken Spoken

	job   wire.Job
	ranks atomic.Pointer[[]wire.Rank] // that it runs or ran

	supply supply

	adopt *adoption // nil unless another launcher has started the daemon

	answered atomic.Bool            // true once the host has answered, even if the start failed later
	daemon   atomic.Pointer[Daemon] // once it was started
	sendErr  atomic.Pointer[error]  // the first message that could not be sent
}

// adoption is a daemon that another launcher has started.
type adoption struct {
	session string
	silence time.Duration // how long it may not answer; 0 for the default
}

// New returns a conversation before it begins. job is what the daemon gets, as far as it is known before.
func New(conf Config, job wire.Job) Conversation {
	return Conversation{conf: conf, job: job, Spoken: spokenEvery(conf.Interval), Queue: newMailbox(), supply: supply{files: conf.Files, pythons: conf.Python}}
}

// Adopt makes the conversation take over the daemon of a session. silence is how long the daemon may fail to answer; 0
// for the default.
func (c *Conversation) Adopt(session string, silence time.Duration) {
	c.adopt = &adoption{session, silence}
}

// Job returns what the daemon gets, as far as it is known before the daemon has started.
func (c *Conversation) Job() wire.Job { return c.job }

// Daemon returns the daemon, nil before it was started.
func (c *Conversation) Daemon() *Daemon { return c.daemon.Load() }

// Line returns the state of the connection to the daemon, and whether it is renewed when it breaks.
func (c *Conversation) Line() (line liveness.Line, renewed bool) {
	if d := c.daemon.Load(); d != nil && d.Away != nil {
		return d.Away(), true
	}
	return liveness.Line{}, false
}

// Started notes the daemon.
func (c *Conversation) Started(d *Daemon) { c.daemon.Store(d) }

// Answered reports whether the host has answered, even if the start failed later.
func (c *Conversation) Answered() bool { return c.answered.Load() }

// Answers notes whether the host answers.
func (c *Conversation) Answers(yes bool) { c.answered.Store(yes) }

// Ranks returns the ranks that the daemon runs or ran.
func (c *Conversation) Ranks() []wire.Rank {
	if ranks := c.ranks.Load(); ranks != nil {
		return *ranks
	}
	return nil
}

// reporter passes events of a conversation to the job's loop.
type reporter struct {
	from   *Conversation
	events chan<- Event
	over   <-chan struct{} // closed when the loop takes no more events
}

// report reports whether the loop took the event.
func (r reporter) report(ev Event) bool {
	ev.Host, ev.From = r.from.job.HostID, r.from
	select {
	case r.events <- ev:
		return true
	case <-r.over:
		return false
	}
}

// reportAndWait returns when the loop has handled the event, or takes no more.
func (r reporter) reportAndWait(ev Event) bool {
	seen := make(chan struct{})
	ev.seen = seen
	taken := r.report(ev)
	if taken {
		select {
		case <-seen:
		case <-r.over:
		}
	}
	return taken
}

// Talk dials the host and reports what its daemon sends, until the daemon sends Done or is lost. It hangs up when line
// ends. After ctx has ended, the job's loop takes no more events.
func (c *Conversation) Talk(ctx, line context.Context, events chan<- Event) {
	to := reporter{c, events, ctx.Done()}
	d, err := c.dial(line)
	if err != nil {
		failed, ok := errors.AsType[*failure.HostError](err)
		if !ok {
			failed = &failure.HostError{Host: c.job.Name, Step: "connect", Err: err, Code: failure.ExitTransport}
		}
		to.report(Event{Err: failed})
		return
	}
	c.Started(d)
	defer d.Wait()
	defer d.Close()
	stop := context.AfterFunc(line, func() { d.Close() })
	defer stop()

	var writer sync.WaitGroup
	defer writer.Wait()
	defer c.Queue.Close()
	writer.Go(func() { c.write(d) })

	in, job := wire.NewReader(d.Out), c.jobFor(d)
	if failure := c.open(d, in, job); failure != nil {
		to.report(Event{Err: failure})
		return
	}
	if to.report(Event{Up: true, Session: d.Session}) {
		c.read(line, d, in, job, to)
	}
}

// jobFor completes the job by what is known since the daemon was started.
func (c *Conversation) jobFor(d *Daemon) *wire.Job {
	job := c.job
	job.LocalIP = d.LocalIP
	job.Env = plan.UserEnv(c.conf.Env, d.Remote)
	if c.conf.Files != nil && d.Remote { // on this machine they are where they are
		job.Tree = c.conf.Files.Tree()
	}
	job.Python = c.conf.Python != nil
	return &job
}

// open begins the conversation. A daemon that is taken over has sent its Hello before, and most likely has its job.
func (c *Conversation) open(d *Daemon, in *wire.Reader, job *wire.Job) *failure.HostError {
	if c.adopt != nil {
		c.Queue.Put(&wire.Adopt{})
		return nil
	}
	if failure := c.meet(d, in); failure != nil {
		return failure
	}
	c.Queue.Put(job)
	return nil
}

// read reports what the daemon sends, until it sends Done or is lost.
func (c *Conversation) read(line context.Context, d *Daemon, in *wire.Reader, job *wire.Job, to reporter) {
	c.supply.put, c.supply.tell = c.Queue.Put, telling(c.job.Name, c.conf.Note)
	defer c.supply.end(false)
	for {
		c.Heard.Reading(time.Now())
		msg, err := in.Read()
		if err != nil { // this does not count as heard: a host that was silent is not back
			lost := c.lost(d, "run", err)
			c.sweep(line, d)
			to.report(Event{Err: lost})
			return
		}
		c.Heard.Has(time.Now())
		if c.supply.take(line, c.job.Name, msg) {
			continue
		}
		report := to.report
		switch m := msg.(type) {
		case *wire.Alive:
			continue
		case *wire.Account:
			if !m.HasJob {
				c.Queue.Put(job) // the former launcher was lost before it sent the job
				continue
			}
		case *wire.Output: // past the loop: a terminal that is read slowly must not delay Ctrl-C
			if c.runs(m.Process) {
				c.conf.Output.Write(m.Process, m.Stream, m.Data)
			}
			continue
		case *wire.Ready:
			c.offer(m, job)
		case *wire.Started:
			if c.conf.Watched {
				report = to.reportAndWait // its output passes the loop, and must not be shown before its start
			}
		case *wire.Done:
			// Close first: the last Done of all ends the job, which cuts all connections. A connection that is cut
			// while it closes would log in again to close in order.
			d.Close()
			to.report(Event{Msg: msg})
			return
		}
		if !report(Event{Msg: msg}) {
			return
		}
	}
}

// offer has other hosts get the files of the job's tree from a daemon that hands them out.
func (c *Conversation) offer(ready *wire.Ready, job *wire.Job) {
	defer c.supply.end(true) // once others can get the files here
	if len(ready.Data) == 0 {
		return
	}
	ip, _, err := net.SplitHostPort(ready.Data[0])
	if err != nil {
		return
	}
	if ready.Files > 0 {
		c.supply.offer(net.JoinHostPort(ip, strconv.Itoa(ready.Files)), job.Tree != nil)
	}
}

func (c *Conversation) dial(ctx context.Context) (*Daemon, error) {
	if c.adopt == nil {
		return c.conf.Dial.Dial(ssh.OnAnswer(ctx, c.Answers), c.job.Name)
	}
	adopter, ok := c.conf.Dial.(Adopter)
	if !ok {
		return nil, errors.New("take over daemon: it can only be started")
	}
	return adopter.Adopt(ctx, c.job.Name, c.adopt.session, c.adopt.silence)
}

// meet takes the Hello of a daemon.
func (c *Conversation) meet(d *Daemon, in *wire.Reader) *failure.HostError {
	msg, err := in.Read()
	hello, ok := msg.(*wire.Hello)
	if err == nil && !ok {
		err = fmt.Errorf("expected Hello, got %T", msg)
	}
	if err != nil {
		return c.lost(d, "start daemon", err)
	}
	if hello.Proto != wire.Proto || hello.Version != c.conf.Version {
		return &failure.HostError{Host: c.job.Name, Step: "start daemon",
			Err:  fmt.Errorf("the daemon is gorun %s, this is %s", hello.Version, c.conf.Version),
			Hint: "run the same gorun binary on every host"}
	}
	return nil
}

// Own adds processes that the daemon may report about. It keeps the former ones: their last reports may come late.
func (c *Conversation) Own(ranks []wire.Rank) {
	all := ranks
	for _, r := range c.Ranks() {
		if !slices.ContainsFunc(all, func(x wire.Rank) bool { return x.Process == r.Process }) {
			all = append(all[:len(all):len(all)], r)
		}
	}
	c.ranks.Store(&all)
}

func (c *Conversation) runs(process int) bool {
	return slices.ContainsFunc(c.Ranks(), func(r wire.Rank) bool { return r.Process == process })
}

// write sends what is queued, and Alive now and then, even while the terminal takes nothing. After an error it closes
// the connection, which the reading side reports.
func (c *Conversation) write(d *Daemon) {
	out := wire.NewWriter(d.In)
	speak := time.NewTicker(c.conf.Interval)
	defer speak.Stop()
	for {
		msgs, more := []wire.Message{&wire.Alive{}}, true
		select {
		case <-c.Queue.wake:
			msgs, more = c.Queue.Take()
		case <-speak.C:
		}
		for _, m := range msgs {
			if err := out.Write(m); err != nil {
				c.sendErr.CompareAndSwap(nil, &err)
				d.Close()
				return
			}
		}
		c.Spoken.Note(time.Now())
		if !more {
			return
		}
	}
}

// lost explains a conversation that broke off, with what the daemon last wrote to standard error.
func (c *Conversation) lost(d *Daemon, step string, err error) *failure.HostError {
	d.Close()
	stderr, waitErr := d.Wait()
	e := &failure.HostError{Host: c.job.Name, Step: step, Code: failure.ExitTransport}
	switch sendErr := c.sendErr.Load(); {
	case sendErr != nil && !isClosed(*sendErr):
		e.Err = *sendErr
	case stderr != "":
		e.Err = errors.New(failure.LastLine(stderr))
	case waitErr != nil && errors.Is(err, io.EOF):
		e.Err = fmt.Errorf("the daemon ended: %w", waitErr)
	case errors.Is(err, io.EOF):
		e.Err = errors.New("the connection to the daemon ended")
	default:
		e.Err = err
	}
	return e
}

// isClosed reports whether a message could not be sent because the connection had ended.
func isClosed(err error) bool {
	return slices.ContainsFunc([]error{os.ErrClosed, net.ErrClosed, io.ErrClosedPipe, syscall.EPIPE, io.EOF},
		func(closed error) bool { return errors.Is(err, closed) })
}

// sweep cleans up a host whose daemon and supervisor were killed together. It comes before the report, because the host
// may be used again, and goes on when the job ends meanwhile.
func (c *Conversation) sweep(ctx context.Context, d *Daemon) {
	if d.Sweep == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepLimit)
	defer cancel()
	if err := d.Sweep(ctx, c.job.ID); err != nil {
		c.conf.Note("gorun: %s: what the job left behind may still run: %v", c.job.Name, err)
	}
}

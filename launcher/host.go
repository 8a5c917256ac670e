package launcher

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
	"gorun/launcher/ssh"
	"gorun/rendezvous/wire"
)

// event is what one host's conversation reports to the loop; exactly one of msg, err and up is set.
type event struct {
	host    int
	from    *host  // whose conversation it is; nil for the present host of the id
	up      bool   // the daemon has answered and got its job
	session string // of the daemon, with up
	msg     wire.Message
	err     *failure.HostError // the last event of this host, unless that was Done
	seen    chan<- struct{}    // closed when the event was handled; nil if its sender does not wait
}

// host is the conversation with one daemon. Its goroutines: talk (dial, then read) and the writer.
type host struct {
	id     int
	name   string
	job    wire.Job
	ranks  atomic.Pointer[[]wire.Rank] // that it runs or ran
	hangUp func()                      // ends the conversation

	up    bool        // its daemon has got the job
	ready *wire.Ready // what its daemon reported when it was ready; nil before
	ended bool        // its conversation is over
	world wire.World  // the one that it entered last

	leaving bool               // an elastic job has ordered it to stop
	evicted *eviction          // how it was given up; nil if it was not
	failure *failure.HostError // why its conversation ended
	session string             // identifies the daemon for a successor of this launcher
	adopted bool               // another launcher has started it
	silence time.Duration      // how long it may not answer when it is taken over; 0 for the default
	spec    *Spec
	queue   mailbox

	heard  heard
	spoken spoken

	answered atomic.Bool            // true once the host has answered, even if the start failed later
	daemon   atomic.Pointer[Daemon] // once it was started
	sendErr  atomic.Pointer[error]  // the first message that could not be sent
}

// newHost returns a host before its conversation. template is what all daemons get.
func newHost(id int, name string, spec *Spec, template wire.Job) *host {
	template.HostID, template.Name = id, name
	return &host{id: id, name: name, job: template, spec: spec, spoken: spoken{every: spec.Timing().LauncherInterval}, queue: newMailbox()}
}

// mailbox is an unbounded queue of messages for a daemon: the loop must never wait for a slow host.
// It stays small anyway: control messages are few, and standard input waits for room.
type mailbox struct {
	mu     sync.Mutex
	msgs   []wire.Message
	closed bool
	wake   chan struct{}
	room   chan struct{} // a token for each piece of standard input that rank 0 has not taken yet
}

func newMailbox() mailbox {
	return mailbox{wake: make(chan struct{}, 1), room: make(chan struct{}, wire.StdinWindow)}
}

func (q *mailbox) put(m wire.Message) {
	q.mu.Lock()
	if !q.closed {
		q.msgs = append(q.msgs, m)
	}
	q.mu.Unlock()
	q.poke()
}

func (q *mailbox) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.poke()
}

func (q *mailbox) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// take returns what is queued and whether more may come.
func (q *mailbox) take() ([]wire.Message, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	m := q.msgs
	q.msgs = nil
	return m, !q.closed
}

// reporter passes events of a conversation to the job's loop.
type reporter struct {
	host   *host
	events chan<- event
	over   <-chan struct{} // closed when the loop takes no more events
}

// report reports whether the loop took the event.
func (r reporter) report(ev event) bool {
	ev.host, ev.from = r.host.id, r.host
	select {
	case r.events <- ev:
		return true
	case <-r.over:
		return false
	}
}

// reportAndWait returns when the loop has handled the event.
func (r reporter) reportAndWait(ev event) bool {
	seen := make(chan struct{})
	ev.seen = seen
	if !r.report(ev) {
		return false
	}
	select {
	case <-seen:
		return true
	case <-r.over:
		return false
	}
}

// talk dials the host and reports what its daemon sends until that is Done or lost. The end of line hangs up. After the
// end of ctx no one takes events any more.
func (h *host) talk(ctx, line context.Context, events chan<- event) {
	to := reporter{h, events, ctx.Done()}
	d, err := h.dial(line)
	if err != nil {
		to.report(event{err: h.explain(err)})
		return
	}
	h.daemon.Store(d)
	defer d.Wait()
	defer d.Close()
	stop := context.AfterFunc(line, func() { d.Close() })
	defer stop()

	var writer sync.WaitGroup
	defer writer.Wait()
	defer h.queue.close()
	writer.Go(func() { h.write(d) })

	in, job := wire.NewReader(d.Out), h.jobFor(d)
	if failure := h.open(d, in, job); failure != nil {
		to.report(event{err: failure})
		return
	}
	if to.report(event{up: true, session: d.Session}) {
		h.read(line, d, in, job, to)
	}
}

// jobFor completes the job by what is known since the daemon was started.
func (h *host) jobFor(d *Daemon) *wire.Job {
	job := h.job
	job.LocalIP = d.LocalIP
	if h.spec.Relay != nil {
		job.Relay = h.spec.Relay.Word()
	}
	job.Env = h.env(d.Remote)
	return &job
}

// open begins the conversation. A daemon that is taken over has sent its Hello before, and most likely has its job.
func (h *host) open(d *Daemon, in *wire.Reader, job *wire.Job) *failure.HostError {
	if h.adopted {
		h.queue.put(&wire.Adopt{})
		return nil
	}
	if failure := h.meet(d, in); failure != nil {
		return failure
	}
	h.queue.put(job)
	return nil
}

// read reports what the daemon sends until that is Done or lost.
func (h *host) read(line context.Context, d *Daemon, in *wire.Reader, job *wire.Job, to reporter) {
	for {
		h.heard.reading(time.Now())
		msg, err := in.Read()
		if err != nil { // the host is not heard by that: one that was silent is not back
			lost := h.lost(d, "run", err)
			h.sweep(line, d)
			to.report(event{err: lost})
			return
		}
		h.heard.has(time.Now())
		report := to.report
		switch m := msg.(type) {
		case *wire.Alive:
			continue
		case *wire.Account:
			if !m.HasJob {
				h.queue.put(job) // the former launcher was lost before it sent the job
				continue
			}
		case *wire.Output: // past the loop: a terminal that is read slowly must not delay Ctrl-C
			if h.runs(m.Process) {
				h.spec.Output.Write(m.Process, m.Stream, m.Data)
			}
			continue
		case *wire.Ready:
			h.offer(m, job)
		case *wire.Started:
			if h.spec.Watch != nil {
				report = to.reportAndWait // its output passes the loop, and must not be shown before its start
			}
		case *wire.Done:
			// Close first: the last Done of all ends the job, which cuts all connections. A connection that is cut
			// while it closes would log in again to close in order.
			d.Close()
			to.report(event{msg: msg})
			return
		}
		if !report(event{msg: msg}) {
			return
		}
	}
}

// offer has other hosts get the binary from a daemon that hands it out.
func (h *host) offer(ready *wire.Ready, job *wire.Job) {
	if ready.Relay <= 0 || job.Relay == "" || len(ready.Data) == 0 {
		return
	}
	if ip, _, err := net.SplitHostPort(ready.Data[0]); err == nil {
		h.spec.Relay.Offer(net.JoinHostPort(ip, strconv.Itoa(ready.Relay)))
	}
}

func (h *host) dial(ctx context.Context) (*Daemon, error) {
	if !h.adopted {
		return h.spec.Dial.Dial(ssh.OnAnswer(ctx, h.answered.Store), h.name)
	}
	adopter, ok := h.spec.Dial.(Adopter)
	if !ok {
		return nil, errors.New("take over daemon: it can only be started")
	}
	return adopter.Adopt(ctx, h.name, h.session, h.silence)
}

// meet takes the Hello of a daemon.
func (h *host) meet(d *Daemon, in *wire.Reader) *failure.HostError {
	hello, err := h.greet(in)
	if err != nil {
		return h.lost(d, "start daemon", err)
	}
	if hello.Proto != wire.Proto || hello.Version != h.spec.Version {
		return &failure.HostError{Host: h.name, Step: "start daemon",
			Err:  fmt.Errorf("the daemon is gorun %s, this is %s", hello.Version, h.spec.Version),
			Hint: "run the same gorun binary on every host"}
	}
	return nil
}

// own adds processes that the daemon may report about. It keeps the former ones: their last reports may come late.
func (h *host) own(ranks []wire.Rank) {
	all := ranks
	if former := h.ranks.Load(); former != nil {
		for _, r := range *former {
			if !slices.ContainsFunc(all, func(x wire.Rank) bool { return x.Process == r.Process }) {
				all = append(all[:len(all):len(all)], r)
			}
		}
	}
	h.ranks.Store(&all)
}

func (h *host) runs(process int) bool {
	ranks := h.ranks.Load()
	return ranks != nil && slices.ContainsFunc(*ranks, func(r wire.Rank) bool { return r.Process == process })
}

func (h *host) greet(in *wire.Reader) (*wire.Hello, error) {
	msg, err := in.Read()
	if err != nil {
		return nil, err
	}
	hello, ok := msg.(*wire.Hello)
	if !ok {
		return nil, fmt.Errorf("expected Hello, got %T", msg)
	}
	return hello, nil
}

// write sends what is queued, and Alive now and then, even while the terminal takes nothing. After an error it closes
// the connection, which the reading side reports.
func (h *host) write(d *Daemon) {
	out := wire.NewWriter(d.In)
	speak := time.NewTicker(h.spec.Timing().LauncherInterval)
	defer speak.Stop()
	for {
		msgs, more := []wire.Message{&wire.Alive{}}, true
		select {
		case <-h.queue.wake:
			msgs, more = h.queue.take()
		case <-speak.C:
		}
		for _, m := range msgs {
			if err := out.Write(m); err != nil {
				h.sendErr.CompareAndSwap(nil, &err)
				d.Close()
				return
			}
		}
		h.spoken.note(time.Now())
		if !more {
			return
		}
	}
}

// lost explains a conversation that broke off, with what the daemon last wrote to standard error.
func (h *host) lost(d *Daemon, step string, err error) *failure.HostError {
	d.Close()
	stderr, waitErr := d.Wait()
	e := &failure.HostError{Host: h.name, Step: step, Code: failure.ExitTransport}
	switch sendErr := h.sendErr.Load(); {
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
func (h *host) sweep(ctx context.Context, d *Daemon) {
	if d.Sweep == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sweepLimit)
	defer cancel()
	if err := d.Sweep(ctx, h.job.ID); err != nil {
		h.spec.Note("gorun: %s: what the job left behind may still run: %v", h.name, err)
	}
}

func (h *host) explain(err error) *failure.HostError {
	var he *failure.HostError
	if errors.As(err, &he) {
		return he
	}
	return &failure.HostError{Host: h.name, Step: "connect", Err: err, Code: failure.ExitTransport}
}

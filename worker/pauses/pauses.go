// Package pauses lets components of a daemon pause the collective operations of all hosts at once. Package moves asks
// for a pause before vSphere moves the machine; package tune asks for one to change the ring.
//
// An asker takes a number (NextRequest), asks (Want), and is called when the ring is paused; End lets operations
// continue. Package rendezvous/pause decides whose turn it is, as a pure state machine; Step feeds it and does what it
// returns: it stops or resumes the engine through Ring, calls the askers, and sends messages to peers. Only the
// daemon's loop calls the methods of Pauses.
package pauses

import (
	"context"
	"log/slog"
	"time"

	"gorun/rendezvous/pause"
	"gorun/rendezvous/wire"
	"gorun/worker/loop"
)

// maxTicks is how many ticks of the loop a pause may take to begin: 20 s.
const maxTicks = 100

// Ring is what pauses.
type Ring interface {
	// Epoch returns the epoch of the present world, 0 before the first.
	Epoch() uint32
	// Pause stops the engine at the boundary with a number, and calls quiet, on any goroutine, when nothing is under way.
	Pause(number uint32, quiet func())
	// Resume lets operations go on, over another ring if there is one.
	Resume(*pause.Go)
	// Send sends a message to a peer, which may miss it.
	Send(peer int, m wire.Message)
}

// Pauses is the state of one host.
type Pauses struct {
	ring    Ring
	loop    *loop.Loop
	log     *slog.Logger
	machine *pause.Machine
	request uint32 // the last one
	askers  map[uint32]asker

	began time.Time // the present one
	count int
	total time.Duration
}

// asker is who wants a pause.
type asker struct {
	held    func()
	refused func(reason string)
}

// New returns the pauses of a host.
func New(self int, ring Ring, l *loop.Loop, log *slog.Logger) *Pauses {
	return &Pauses{ring: ring, loop: l, log: log, machine: pause.New(self, maxTicks), askers: map[uint32]asker{}}
}

// NextRequest returns the number of a request for a pause.
func (p *Pauses) NextRequest() uint32 {
	p.request++
	return p.request
}

// Want asks for a pause of the whole ring. held is called when the ring is paused, and then it stays so until End;
// refused if that does not come about. Either may be called before Want returns.
func (p *Pauses) Want(ctx context.Context, request uint32, held func(), refused func(reason string)) {
	p.askers[request] = asker{held, refused}
	p.Step(ctx, pause.Event{Want: request})
}

// End ends what Want began, however far it is.
func (p *Pauses) End(ctx context.Context, done pause.Done) {
	delete(p.askers, done.Request)
	p.Step(ctx, pause.Event{Done: &done})
}

// Step drives the machine and does what it returns, in the order of its fields.
func (p *Pauses) Step(ctx context.Context, ev pause.Event) {
	a, err := p.machine.Step(ev)
	if err != nil {
		p.log.Warn("pause: dropped an event", "error", err)
		return
	}
	if a.Go != nil {
		p.total += time.Since(p.began)
		p.ring.Resume(a.Go)
	}
	if a.Stop != 0 {
		p.stop(ctx, a.Stop)
	}
	if asker, ok := p.askers[a.Held]; ok {
		asker.held()
	}
	for _, r := range a.Refused {
		if asker, ok := p.askers[r.Request]; ok {
			delete(p.askers, r.Request)
			asker.refused(r.Reason)
		}
	}
	for _, s := range a.Send {
		p.ring.Send(s.To, s.Message) // the machine repeats what gets lost
	}
}

// stop stops the engine, and steps on when nothing is under way.
func (p *Pauses) stop(ctx context.Context, number uint32) {
	p.began = time.Now()
	p.count++
	epoch := p.ring.Epoch()
	p.ring.Pause(number, func() {
		p.loop.Go(func() { // it is the engine that calls, maybe on the loop's own goroutine
			p.loop.Post(ctx, func() {
				if p.ring.Epoch() == epoch {
					p.Step(ctx, pause.Event{Quiet: number})
				}
			})
		})
	})
}

// Paused reports whether the ring is paused, or about to be.
func (p *Pauses) Paused() bool { return p.machine.Number() != 0 }

// Totals returns how often the ring has paused, and for how long in all.
func (p *Pauses) Totals() (count int, total time.Duration) { return p.count, p.total }

package collective

import (
	"context"
	"fmt"
	"sync"
	"time"

	"gorun/collective/link"
	"gorun/collective/schedule"
)

// LinkProber measures what messages between two hosts cost, before there is a world. It is a link.Handler that
// stands before the engine's: it answers the probes of other hosts and passes on all else. It has no
// goroutine of its own.
type LinkProber struct {
	link.Handler
	transport Transport

	turn    chan struct{} // of one measurement at a time
	mu      sync.Mutex
	number  uint32        // of the measurement under way
	answers chan struct{} // to its probes
}

// NewLinkProber returns a prober before the given handler.
func NewLinkProber(next link.Handler, t Transport) *LinkProber {
	return &LinkProber{Handler: next, transport: t, turn: make(chan struct{}, 1), answers: make(chan struct{}, maxProbes)}
}

// Probes are data segments of no world's epoch and of this operation.
const (
	probeOp    = 0x676f72756e70726f
	stepProbe  = 1
	stepAnswer = 2
)

// A measurement takes a few milliseconds in a local network: some messages there and back one after the
// other, a burst of them, and a megabyte, in segments as operations have them.
const (
	probeTurns  = 12
	probePause  = 15 * time.Millisecond // no more turns after that
	probeBurst  = 16
	probeBulk   = 4
	probeBytes  = 256 << 10
	probeRepeat = 4 * time.Millisecond // a bulk that takes less was too short to be exact
	maxProbes   = 16
)

// Measure returns what messages to a peer cost. Measurements wait for each other.
func (p *LinkProber) Measure(ctx context.Context, peer int) (schedule.Cost, error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return schedule.Cost{}, fmt.Errorf("measure link to host %d: %w", peer, context.Cause(ctx))
	}
	p.mu.Lock()
	p.number++
	p.answers = make(chan struct{}, maxProbes)
	p.mu.Unlock()
	small, large := make([]byte, 8), make([]byte, probeBytes)
	if _, err := p.round(ctx, peer, 1, small); err != nil { // a peer that sleeps wakes up
		return schedule.Cost{}, err
	}
	var turn, burst, bulk time.Duration
	begin := time.Now()
	for i := 0; i < 2 || i < probeTurns && time.Since(begin) < probePause; i++ {
		d, err := p.round(ctx, peer, 1, small)
		if err != nil {
			return schedule.Cost{}, err
		}
		if i == 0 || d < turn {
			turn = d
		}
	}
	burst, err := p.round(ctx, peer, probeBurst, small)
	if err != nil {
		return schedule.Cost{}, err
	}
	bytes := 0
	for n := probeBulk; n <= maxProbes; n *= 2 {
		if bulk, err = p.round(ctx, peer, n, large); err != nil {
			return schedule.Cost{}, err
		}
		if bytes = n * probeBytes; bulk > probeRepeat {
			break
		}
	}
	return schedule.Cost{
		Alpha: turn.Seconds() / 2,
		Beta:  max(bulk-turn, bulk/2).Seconds() / float64(bytes),
		Gap:   max(burst-turn, 0).Seconds() / (probeBurst - 1),
	}, nil
}

// round sends probes and returns how long it took until all were answered.
func (p *LinkProber) round(ctx context.Context, peer, count int, payload []byte) (time.Duration, error) {
	p.mu.Lock()
	number, answers := p.number, p.answers
	p.mu.Unlock()
	begin := time.Now()
	for range count {
		p.transport.Send(peer, &link.Segment{Payload: payload,
			Header: link.Header{Kind: link.Data, Step: stepProbe, Op: probeOp, Gen: number, Length: uint32(len(payload))}})
	}
	for range count {
		select {
		case <-answers:
		case <-ctx.Done():
			return 0, fmt.Errorf("measure link to host %d: %w", peer, context.Cause(ctx))
		}
	}
	return time.Since(begin), nil
}

// Place implements link.Handler.
func (p *LinkProber) Place(peer int, h link.Header) ([]byte, error) {
	if isProbe(&h) {
		return nil, nil
	}
	return p.Handler.Place(peer, h)
}

// Deliver implements link.Handler.
func (p *LinkProber) Deliver(peer int, h link.Header, payload []byte) {
	switch {
	case !isProbe(&h):
		p.Handler.Deliver(peer, h, payload)
	case h.Step == stepProbe:
		p.transport.Send(peer, &link.Segment{Payload: make([]byte, 8),
			Header: link.Header{Kind: link.Data, Step: stepAnswer, Op: probeOp, Gen: h.Gen, Length: 8}})
	case h.Step == stepAnswer:
		p.mu.Lock()
		defer p.mu.Unlock()
		if h.Gen == p.number {
			select {
			case p.answers <- struct{}{}:
			default: // no measurement waits for it
			}
		}
	}
}

// isProbe reports whether a segment is the prober's. No world has epoch 0.
func isProbe(h *link.Header) bool { return h.Epoch == 0 && h.Kind == link.Data && h.Op == probeOp }

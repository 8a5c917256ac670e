package register

import (
	"context"
	"errors"
	"slices"
	"time"

	"gorun/launcher"
	"gorun/launcher/jobs"
	"gorun/launcher/why"
)

const (
	// whyTimeout bounds the launcher's search for what ranks wait for; daemons get two seconds of it.
	whyTimeout = 5 * time.Second
	// nativeTimeout is for functions of C: an inspection under way has to end before, and tools have 20 s.
	nativeTimeout = 32 * time.Second
)

// waiting is a client that waits for what daemons find out.
type waiting struct {
	found  chan []why.Finding
	native bool // it wants the functions of C
}

// Why has the launcher find out what its ranks wait for.
func (r *Registration) Why(ctx context.Context) ([]why.Finding, error) {
	return r.ask(ctx, r.askWhy, waiting{make(chan []why.Finding, 1), false}, whyTimeout)
}

// Native is Why with the functions of C that ranks are in, by tools that stop each rank for a moment.
func (r *Registration) Native(ctx context.Context) ([]why.Finding, error) {
	return r.ask(ctx, r.askNative, waiting{make(chan []why.Finding, 1), true}, nativeTimeout)
}

func (r *Registration) ask(ctx context.Context, ask chan<- struct{}, w waiting, limit time.Duration) ([]why.Finding, error) {
	r.mu.Lock()
	r.waiting = append(r.waiting, w)
	r.mu.Unlock()
	select {
	case ask <- struct{}{}:
	default: // it has been asked already
	}
	timeout := time.NewTimer(limit)
	defer timeout.Stop()
	select {
	case all := <-w.found:
		return all, nil
	case <-timeout.C:
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = slices.DeleteFunc(r.waiting, func(other waiting) bool { return other == w })
	return nil, errors.New("the job is starting or ending, so its daemons were not asked")
}

// Drain has the launcher drain a host, or use it again, and returns how far that has come.
func (r *Registration) Drain(ctx context.Context, host string, undo bool) (jobs.Departure, error) {
	return r.drain(ctx, launcher.Drain{Host: host, Undo: undo})
}

// Departure returns how far a host has come that was to be drained.
func (r *Registration) Departure(ctx context.Context, host string) (jobs.Departure, error) {
	return r.drain(ctx, launcher.Drain{Host: host, Look: true})
}

func (r *Registration) drain(ctx context.Context, d launcher.Drain) (jobs.Departure, error) {
	ctx, cancel := context.WithTimeout(ctx, whyTimeout)
	defer cancel()
	answer := make(chan launcher.Drained, 1)
	d.Answer = answer
	select {
	case r.drains <- d:
	case <-ctx.Done():
		return jobs.Departure{}, errors.New("the job is starting or ending")
	}
	select {
	case d := <-answer:
		return jobs.Departure{Left: d.Left, Waits: d.Waits, Used: d.Used}, d.Err
	case <-ctx.Done():
		return jobs.Departure{}, errors.New("the job is ending")
	}
}

// inspected passes on what was found to the clients that wait for it. Whoever wants functions of C waits until there are
// some.
func (r *Registration) inspected(all []why.Finding, native bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = slices.DeleteFunc(r.waiting, func(w waiting) bool {
		if w.native && !native {
			return false
		}
		w.found <- all
		return true
	})
}

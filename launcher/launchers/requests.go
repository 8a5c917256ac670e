package launchers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gorun/launcher"
	"gorun/launcher/jobs"
	"gorun/launcher/why"
)

const (
	// askTimeout bounds what a launcher looks for: an inspection under way has to end before another one, of 4 s each.
	askTimeout = 9 * time.Second
	// nativeTimeout is for functions of C: tools have 20 s.
	nativeTimeout = 32 * time.Second
)

// answer is the jobs.Handler.
func (r *Registration) answer(ctx context.Context, q jobs.Request) (any, error) {
	switch q.Do {
	case "signal":
		return nil, r.signal(q.Signal, q.By)
	case "state":
		return r.State(), nil
	case "output":
		return r.recorder.After(q.After), nil
	case "why":
		return r.Why(ctx, q.Native)
	case "drain":
		answer := make(chan jobs.Departure, 1)
		d, err := ask(ctx, askTimeout, r.drains, launcher.Drain{Host: q.Host, Undo: q.Undo, Look: q.Look, Answer: answer}, answer)
		return d, errors.Join(err, d.Err)
	}
	return nil, fmt.Errorf("unknown request %q", q.Do)
}

// Why has the launcher find out what its ranks wait for, with native also which functions of C they are in.
func (r *Registration) Why(ctx context.Context, native bool) ([]why.Finding, error) {
	limit := askTimeout
	if native {
		limit = nativeTimeout
	}
	answer := make(chan []why.Finding, 1)
	return ask(ctx, limit, r.whys, launcher.Why{Native: native, Answer: answer}, answer)
}

// ask puts a question to the launcher's loop.
func ask[Q, A any](ctx context.Context, limit time.Duration, to chan<- Q, question Q, answer <-chan A) (a A, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case to <- question:
	case <-ctx.Done():
		return a, errors.New("the job is starting or ending")
	}
	select {
	case a = <-answer:
		return a, nil
	case <-ctx.Done():
		return a, errors.New("the job is ending")
	}
}

// Lines returns what ranks wrote, from a number on, for a Source that may be in another process.
func (r *Registration) Lines(_ context.Context, after int64) (jobs.Lines, error) {
	return r.recorder.After(after), nil
}

// Status is State, for a Source that may be in another process.
func (r *Registration) Status(context.Context) (jobs.State, error) { return r.State(), nil }

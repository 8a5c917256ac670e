package jobs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"sync"
	"time"

	"gorun/rendezvous/authority"
	"gorun/rendezvous/resume"
)

const (
	// seekInterval is how often Attach looks for another launcher when the last one is gone.
	seekInterval = 2 * time.Second
	// askInterval is how often it asks the host of a launcher that seems well whether the launcher runs.
	askInterval = 5 * time.Second
	// askAllInterval is how often it asks all hosts all the same: a launcher that is stopped by a signal counts as
	// running on its host.
	askAllInterval = time.Minute
)

// Target is a job that was found.
type Target struct {
	Job
	Record
	Label string // the job's name for users
	// Read reads what the job wrote: the last lines, all if lines is negative, and then what comes, if it is to follow.
	Read func(ctx context.Context, lines int, follow bool) (io.ReadCloser, error)

	// next asks all hosts for the launcher that has taken over from this one, or for the end of the job. It returns
	// false if no host knows of either. It is nil if no other launcher ever takes over.
	next func(ctx context.Context) (Target, bool)
	// runs asks the host of this launcher whether the launcher runs.
	runs func(ctx context.Context) bool
}

// FindHere finds a job of this machine, as Store.Find does.
func FindHere(store Store, id string, running bool) (t Target, err error) {
	if t.Job, t.Record, err = store.Find(id, running); err != nil {
		return t, err
	}
	t.Label = strconv.Itoa(t.ID)
	t.Read = func(_ context.Context, lines int, follow bool) (io.ReadCloser, error) { return t.Tail(lines, follow) }
	return t, nil
}

// errMoved means that a launcher is gone without having reported the end of its job.
var errMoved = errors.New("the job's launcher is gone")

// Show copies what the job wrote, until its end if it is to follow.
func (t Target) Show(ctx context.Context, to io.Writer, lines int, follow bool) error {
	from, err := t.Read(ctx, lines, follow)
	if err != nil {
		return err
	}
	defer from.Close()
	defer context.AfterFunc(ctx, func() { from.Close() })()
	if _, err := io.Copy(to, from); err != nil {
		return fmt.Errorf("show output: %w", err)
	}
	return nil
}

// Attach shows the job's output from the last lines to the end of the job, and returns its exit status. It calls moved
// with the new Target when another launcher has taken over.
func (t Target) Attach(ctx context.Context, to io.Writer, lines int, moved func(Target)) (int, error) {
	code, err := t.follow(ctx, to, lines)
	for t.next != nil && errors.Is(err, errMoved) {
		next, ok := t.successor(ctx)
		if !ok {
			break
		}
		if next.State == Ended {
			lines := 0
			if next.Term > t.Term {
				lines = -1 // nothing of its output was shown
			}
			next.Show(ctx, to, lines, false)
			return next.Code, nil
		}
		moved(next)
		t = next
		code, err = t.follow(ctx, to, -1)
	}
	return code, err
}

// follow shows the output until the end of this launcher, and returns the job's exit status if the launcher reports it.
func (t Target) follow(ctx context.Context, to io.Writer, lines int) (int, error) {
	here, leave := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer leave(nil)
	type end struct {
		code int
		err  error
	}
	ended := make(chan end, 1)
	watching.Go(func() {
		code, err := t.Wait(here) // begins before the end, so that the launcher reports it
		ended <- end{code, err}
	})
	if t.next != nil {
		watching.Go(func() {
			if t.succeeded(here) {
				leave(errMoved)
			}
		})
	}
	err := t.Show(here, to, lines, true)
	if err != nil && here.Err() == nil && t.next == nil {
		return 0, err
	}
	e := <-ended
	if e.err != nil && t.next != nil && ctx.Err() == nil {
		return 0, errMoved
	}
	return e.code, e.err
}

// succeeded waits until another launcher has taken over from this one. It does not rely on this launcher's connections,
// because its host may have lost power without closing them.
func (t Target) succeeded(ctx context.Context) bool {
	for waits := askInterval; resume.Pause(ctx, askInterval); waits += askInterval {
		if waits%askAllInterval != 0 && t.runs(ctx) {
			continue
		}
		// As long as this launcher may be there, only it can report how the job ended.
		if next, ok := t.next(ctx); ok && next.Term > t.Term {
			return true
		}
	}
	return false
}

// successor waits for the launcher that takes over from one that is gone, or for the job's end.
func (t Target) successor(ctx context.Context) (Target, bool) {
	limit, cancel := context.WithTimeout(ctx, 3*authority.SuccessionTimeout)
	defer cancel()
	tick := time.NewTicker(seekInterval)
	defer tick.Stop()
	for {
		if next, ok := t.next(limit); ok {
			return next, true
		}
		select {
		case <-tick.C:
		case <-limit.Done():
			return Target{}, false
		}
	}
}

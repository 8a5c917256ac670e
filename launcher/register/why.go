package register

import (
	"context"
	"errors"
	"slices"
	"time"

	"gorun/launcher/why"
)

// whyTimeout is how long the launcher has to find out what ranks wait for: daemons have two seconds.
const whyTimeout = 5 * time.Second

// Why has the launcher find out what its ranks wait for.
func (r *Registration) Why(ctx context.Context) ([]why.Finding, error) {
	found := make(chan []why.Finding, 1)
	r.mu.Lock()
	r.found = append(r.found, found)
	r.mu.Unlock()
	select {
	case r.askWhy <- struct{}{}:
	default: // it has been asked already
	}
	timeout := time.NewTimer(whyTimeout)
	defer timeout.Stop()
	select {
	case all := <-found:
		return all, nil
	case <-timeout.C:
	case <-ctx.Done():
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found = slices.DeleteFunc(r.found, func(c chan []why.Finding) bool { return c == found })
	return nil, errors.New("the job is starting or ending, so its daemons were not asked")
}

// inspected passes on what was found to the clients that wait for it.
func (r *Registration) inspected(all []why.Finding) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, found := range r.found {
		found <- all
	}
	r.found = nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"gorun/launcher/failure"
	"gorun/launcher/hosts"
	"gorun/launcher/ssh"
	"gorun/launcher/talk"
	"gorun/rendezvous/resume"
	"gorun/rendezvous/standing"
)

// mpiJobPatience limits the wait for the workers of an MPIJob to appear: Kubernetes pulls and names pods while the
// launcher already runs.
const mpiJobPatience = 3 * time.Minute

// retry keeps connecting to hosts that are not there yet, hosts that were there and do not answer for now, and hosts
// whose connection broke. It asks a host that refuses it only once.
type retry struct {
	patience    time.Duration
	start       time.Duration // at least, with a host that was there
	first, most time.Duration // between two attempts
}

func newRetry(o *jobFlags) retry {
	r := retry{o.connectRetry, o.startTimeout, 250 * time.Millisecond, 5 * time.Second}
	if !o.given(&o.connectRetry) && hosts.InMPIJob(surroundings()) {
		r.patience = mpiJobPatience
	}
	return r
}

// dial calls dial until it succeeds, fails for good, or patience ends.
func (r retry) dial(ctx context.Context, host string, dial func(context.Context, string) (*talk.Daemon, error)) (*talk.Daemon, error) {
	began := time.Now()
	for wait := r.first; ; wait = min(2*wait, r.most) {
		d, err := dial(ctx, host)
		var failed *failure.HostError
		broken := errors.Is(err, ssh.ErrBroken)
		was := broken || errors.Is(err, ssh.ErrPaused)
		if err == nil || !errors.As(err, &failed) || !was && failed.Stage() != ssh.StepResolve && failed.Stage() != ssh.StepConnect {
			return d, err
		}
		if was { // it may take no connection for a while either
			r.patience = max(r.patience, r.start)
		}
		if broken {
			ssh.Unanswered(ctx)
		}
		if time.Until(began.Add(r.patience)) < wait {
			if r.patience > 0 {
				failed.Err = fmt.Errorf("%w (for %v)", failed.Err, r.patience)
			}
			return nil, failed
		}
		if !pause(ctx, wait) {
			return nil, failed
		}
	}
}

// reserve calls ask until a cluster gives slots, refuses for good, or patience ends. A cluster that starts may have no
// name yet, not answer, or know too few of its hosts. waits shows the user why there are no slots yet, each reason once.
func (r retry) reserve(ctx context.Context, waits func(text string), ask func() error) error {
	began, last := time.Now(), ""
	for wait := r.first; ; wait = min(2*wait, r.most) {
		err := ask()
		if err == nil || !mayGrow(err) || time.Until(began.Add(r.patience)) < wait {
			return err
		}
		if text := err.Error(); text != last {
			last = text
			waits(fmt.Sprintf("waiting for the cluster for up to %v (--connect-retry): %s", r.patience, text))
		}
		if !pause(ctx, wait) {
			return context.Cause(ctx)
		}
	}
}

// pause waits for about that long, so that not all launchers ask at once. It returns false if ctx ends first.
func pause(ctx context.Context, wait time.Duration) bool {
	return resume.Pause(ctx, wait/2+rand.N(wait/2+1))
}

// mayGrow reports whether a cluster that did not give slots may yet be starting.
func mayGrow(err error) bool {
	if refused, ok := errors.AsType[*standing.RefusedError](err); ok {
		return refused.Small
	}
	_, unreached := errors.AsType[net.Error](err)
	return unreached
}

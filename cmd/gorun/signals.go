package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gorun/launcher/failure"
)

// signalError is an interruption by the user or the system.
type signalError struct{ sig syscall.Signal }

func (e signalError) Error() string { return "stopped by " + unix.SignalName(e.sig) }

func (e signalError) ExitCode() int { return 128 + int(e.sig) }

func (e signalError) Is(target error) bool {
	return target == failure.ErrStopped || target == failure.ErrInterrupted && e.sig == syscall.SIGINT
}

// onInterrupt calls stop at the first INT, TERM or HUP, and closes hurry at the second.
func onInterrupt(stop context.CancelCauseFunc, hurry chan struct{}) (cancel func()) {
	n := 0
	return notify(func(s syscall.Signal) {
		switch n++; n {
		case 1:
			stop(signalError{s})
		case 2:
			close(hurry)
		}
	}, append(endings(), syscall.SIGINT)...)
}

// endings are the signals that end a command, besides Ctrl-C.
func endings() []os.Signal {
	if signal.Ignored(syscall.SIGHUP) { // as under nohup
		return []os.Signal{syscall.SIGTERM}
	}
	return []os.Signal{syscall.SIGTERM, syscall.SIGHUP}
}

// slowStop is how long after Ctrl-C users get a note about ranks that still run.
const slowStop = time.Second

// noteSlowStop prints a note, if a stop by Ctrl-C takes a while, about what the next Ctrl-C does. stop ends that.
func noteSlowStop(ctx context.Context, grace time.Duration, note func(format string, args ...any)) (stop func()) {
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		select {
		case <-ctx.Done():
		case <-ended:
			return
		}
		var by signalError
		if !errors.As(context.Cause(ctx), &by) || by.sig != syscall.SIGINT {
			return
		}
		select {
		case <-time.After(slowStop):
			note("gorun: stopping the ranks, which have %v to end; Ctrl-C again kills them", grace)
		case <-ended:
		}
	})
	return func() { close(ended); wg.Wait() }
}

// passTime is how long the launcher waits after Ctrl-Z before it stops itself, so that ranks receive the signal. Ranks
// that receive it later receive the end of the pause right after it.
const passTime = 200 * time.Millisecond

// forwardSignals passes signals that users send to a launcher on to the ranks. Ctrl-\ ends ranks that do not handle it,
// as it ends a program that runs without gorun, and makes Python's faulthandler print where they are. Ctrl-Z stops them
// and then the launcher, as a shell expects; fg continues both.
func forwardSignals(to chan<- int) (stop func()) {
	return notify(func(s syscall.Signal) {
		select {
		case to <- int(s):
		default:
		}
		if s == unix.SIGTSTP {
			time.AfterFunc(passTime, func() { unix.Kill(unix.Getpid(), unix.SIGSTOP) })
		}
	}, unix.SIGUSR1, unix.SIGUSR2, unix.SIGQUIT, unix.SIGTSTP, unix.SIGCONT)
}

// notify calls f for each of the given signals until stop is called.
func notify(f func(syscall.Signal), signals ...os.Signal) (stop func()) {
	c := make(chan os.Signal, 8)
	signal.Notify(c, signals...)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case s := <-c:
				f(s.(syscall.Signal))
			case <-done:
				return
			}
		}
	}()
	return func() { signal.Stop(c); close(done) }
}

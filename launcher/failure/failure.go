// Package failure has an error type for each way in which a job fails. An error gives one line for the user, lines with
// details below it, the next step, and the exit code of the launcher (explain.go).
package failure

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gorun/launcher/elastic"
	"gorun/launcher/hosts"
	"gorun/topology"
)

// Exit codes beside those of the ranks themselves. docs/reference/exit-status.md lists them.
const (
	ExitFailure   = 1   // anything not named below
	ExitUsage     = 2   // wrong flags or arguments
	ExitTimeout   = 124 // the job took longer than it may
	ExitTransport = 255 // a host could not be reached, or was lost
)

// ErrStopped is the cause of a job that was ended from outside (Ctrl-C) and not by one of its ranks.
var ErrStopped = errors.New("stopped")

// ErrInterrupted is the cause of a job that was ended by Ctrl-C. Its ranks get the signal that they would get at a
// terminal.
var ErrInterrupted = errors.New("interrupted")

// HostError explains why a host cannot take part.
type HostError = hosts.Error

// HostErrors ends a start that failed on several hosts, or on one before others had answered.
type HostErrors struct {
	Hosts  int // of the job
	Failed []*HostError
	// Hosts without a daemon when the start was given up. Silent ones had not answered, late ones had.
	Silent, Late []string
}

// OfHosts returns the error of a start that failed on some of its hosts, nil if there are none.
func OfHosts(hosts int, failed []*HostError) error {
	switch len(failed) {
	case 0:
		return nil
	case 1:
		return failed[0]
	}
	return &HostErrors{Hosts: hosts, Failed: failed}
}

func (e *HostErrors) Error() string {
	if len(e.Failed) == 1 {
		return e.Failed[0].Error()
	}
	return fmt.Sprintf("%d of %d hosts failed", len(e.Failed), e.Hosts)
}

// RankError describes the first rank that failed, which decides the job.
type RankError struct {
	Rank   int
	Host   string
	Code   int
	Signal int
	Reason string // why it could not start
	// Unfinished is true of an MPI program that exited with 0 without MPI_Finalize.
	Unfinished bool
	// Alone is the library of an MPI program that exited with 0, or was ended, because it never found the other ranks.
	Alone string
	// Memory is true of a rank that the kernel ended for lack of memory.
	Memory bool
	File   string   // the program, as its host found it
	Tail   []string // last lines of its standard error
	Hint   string   // what the user can do, if it is not what the rest of the error suggests
	// Shown is true of a failure that the user has read about, with the last lines, while the job went on.
	Shown bool
}

func (e *RankError) Error() string {
	switch {
	case e.Reason != "":
		return fmt.Sprintf("rank %d on %s could not start: %s", e.Rank, e.Host, e.Reason)
	case e.Alone != "":
		return fmt.Sprintf("rank %d on %s was alone: its %s knew of none of the other ranks", e.Rank, e.Host, e.Alone)
	case e.Unfinished:
		return fmt.Sprintf("rank %d on %s exited without MPI_Finalize", e.Rank, e.Host)
	case e.Memory:
		return fmt.Sprintf("rank %d on %s was ended by the kernel: its control group is out of memory", e.Rank, e.Host)
	case e.Signal != 0:
		return fmt.Sprintf("rank %d on %s was killed by signal %d (%s)", e.Rank, e.Host, e.Signal, unix.SignalName(syscall.Signal(e.Signal)))
	}
	text := fmt.Sprintf("rank %d on %s exited with status %d", e.Rank, e.Host, e.Code)
	if why, ofAll := strings.CutPrefix(e.Cause(), "gorun.exceptions.HorovodInternalError: "); ofAll {
		text += ": " + why // which names the ranks that disagree, or the one that left: they are not this one, or not alone
	}
	return text
}

// JobError ends a job, or a command, for a reason that lies in no single rank or host.
type JobError struct {
	Why   string
	Lines []string // details
	Hint  string   // what the user can do, "" if nothing useful is known
	Code  int      // of the launcher, or the command
}

func (e *JobError) Error() string { return e.Why }

// Timeout ends a job that took longer than it may. states are what every rank did, a line each.
func Timeout(after time.Duration, states []string) *JobError {
	return &JobError{Why: fmt.Sprintf("the job has not ended after %v", after), Lines: states, Code: ExitTimeout,
		Hint: "give it more time with --timeout, or none at all without it"}
}

// Elastic ends a job that lost too much: too many ranks at once, or ranks too often. The hint names the flags that kept
// it from going on.
func Elastic(cause elastic.Cause, why string) *JobError {
	e := &JobError{Why: why, Code: ExitFailure}
	switch cause {
	case elastic.TooFew:
		e.Hint = "a lower --min-np goes on with fewer ranks, --blacklist-cooldown-range lets failed slots be used again, --elastic-timeout waits longer for hosts"
	case elastic.TooManyResets:
		e.Hint = "the output of the ranks shows why they fail; a higher --reset-limit lets them begin anew more often"
	}
	return e
}

// IsolatedError ends a job whose launcher was cut off from all of its hosts, or was stopped, for longer than they wait
// for it.
type IsolatedError struct {
	Hosts   int
	Since   time.Time
	Stopped time.Duration // how long the launcher was stopped, 0 if it was not
	Limit   time.Duration // after which hosts end a job without its launcher
}

func (e *IsolatedError) Error() string {
	if e.Stopped > 0 {
		return fmt.Sprintf("gorun, or this machine, was stopped for %.0f s; without it its %s end the job after %v",
			e.Stopped.Seconds(), topology.Count(e.Hosts, "host"), e.Limit)
	}
	return fmt.Sprintf("this machine has heard from none of its %s since %s; without it they end the job after %v",
		topology.Count(e.Hosts, "host"), e.Since.Format(time.TimeOnly), e.Limit)
}

// MinorityError ends a job that must go on in another world when too few of its electors are left to make its snapshot
// safe.
type MinorityError struct{ Of, Left int }

func (e *MinorityError) Error() string {
	return fmt.Sprintf("too few hosts are left to elect the job's launcher (%d of %d): the job cannot go on without the lost ones", e.Left, e.Of)
}

// LastLine returns the last line that a daemon wrote to standard error, or why the Go runtime ended it.
func LastLine(s string) string {
	for line := range strings.Lines(s) {
		if strings.HasPrefix(line, noThread) {
			return "no more threads can be started: " + strings.TrimSpace(line)
		}
		if strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") {
			return strings.TrimSpace(line)
		}
		if text, ok := strings.CutPrefix(line, "gorun: error: "); ok { // it may have a hint behind it
			return strings.TrimSpace(text)
		}
	}
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

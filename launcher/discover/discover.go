// Package discover watches what users supply to describe a changing cluster: a script that lists the hosts, in the
// format of Horovod's --host-discovery-script, and a command that announces moves of virtual machines.
//
// Script.Watch runs the list script at intervals and delivers every list that differs from the previous one.
// Moves.Watch keeps one command running and delivers its announcements. Both run in the caller's goroutine and have no
// other; when they return, the processes of the script have ended. The package contacts no host and decides nothing
// about hosts.
package discover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"time"

	"gorun/launcher/hosts"
)

const (
	// maxOutput bounds the output of a script.
	maxOutput = 1 << 20
	// held is how long a script that has ended may leave its output open to its children.
	held = time.Second
)

// Script is a shell command that lists the hosts, one per line: host:slots, host slots=N or host.
type Script struct {
	Command string
	Slots   int           // of a host whose line has no number; 0: every line must have one
	Every   time.Duration // interval between the starts of two runs
	Limit   time.Duration // time limit of one run
	Env     []string
	// Parse reads what the command prints, if that is not such lines.
	Parse func(text string) ([]hosts.ListedHost, error)
}

// Watch runs the script until ctx ends, and delivers every list that differs from the previous one. If the very first
// run fails, so does Watch; later failures are noted (the first in a row, then ever more rarely) and the list stays
// unchanged.
func (s Script) Watch(ctx context.Context, found func([]hosts.ListedHost), note func(format string, args ...any)) error {
	var last []hosts.ListedHost
	runs, failures := 0, 0
	tick := time.NewTicker(s.Every)
	defer tick.Stop()
	for ; ; runs++ {
		list, err := s.Run(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && runs == 0:
			return err
		case err != nil:
			failures++
			if failures&(failures-1) == 0 {
				note("gorun: %v (%d in a row); the hosts stay as they were", err, failures)
			}
		default:
			if failures > 0 {
				note("gorun: the host discovery script works again")
			}
			failures = 0
			if runs == 0 || !slices.Equal(list, last) {
				last = list
				found(list)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// Error is a failed run of a script.
type Error struct {
	Command string
	Err     error
}

func (e *Error) Error() string {
	return fmt.Sprintf("run host discovery script %s: %v", e.Command, e.Err)
}

func (e *Error) Unwrap() error { return e.Err }

// ExitCode is the general one.
func (e *Error) ExitCode() int { return 1 }

// NextStep describes what gorun expects of a script.
func (e *Error) NextStep() string {
	return "this machine runs it with sh -c; it prints a line for each host, as in host1:4, and exits with 0"
}

// Run runs the script once. Its errors are of the type *Error.
func (s Script) Run(ctx context.Context) ([]hosts.ListedHost, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.Limit, fmt.Errorf("it takes longer than %v", s.Limit))
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	stdout := limited{max: maxOutput, full: func() { stop(fmt.Errorf("it writes more than %d bytes", maxOutput)) }}
	said, err := shell(ctx, s.Command, s.Env, &stdout)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, &Error{s.Command, saying(err, said)}
	}
	read := s.Parse
	if read == nil {
		read = func(text string) ([]hosts.ListedHost, error) { return parse(text, s.Slots) }
	}
	list, err := read(stdout.String())
	if err != nil {
		return nil, &Error{s.Command, err}
	}
	return list, nil
}

// parse reads the output of a script. Empty output means no hosts, which is not an error.
func parse(text string, slots int) ([]hosts.ListedHost, error) {
	list, err := hosts.ParseFile(text)
	if errors.Is(err, hosts.ErrNone) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read its output: %w", err)
	}
	for i := range list {
		if list[i].Slots == 0 {
			list[i].Slots = slots
		}
		if list[i].Slots == 0 {
			return nil, fmt.Errorf("read its output: %s has no number of slots: write %s:N, or give --slots-per-host", list[i].Name, list[i].Name)
		}
	}
	return list, nil
}

// shell runs a command, and returns the last line that it wrote to standard error.
func shell(ctx context.Context, command string, env []string, stdout io.Writer) (said string, err error) {
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", command)
	stderr := limited{max: 4 << 10}
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = env, stdout, &stderr, held
	err = runInGroup(cmd)
	said = strings.TrimSpace(stderr.String())
	return said[strings.LastIndexByte(said, '\n')+1:], err
}

func saying(err error, said string) error {
	if said == "" {
		return err
	}
	return fmt.Errorf("%w: %s", err, said)
}

// limited keeps the first bytes written to it. The buffer is not embedded because its ReadFrom has no limit.
type limited struct {
	kept bytes.Buffer
	max  int
	full func() // called when more is written; may be nil
}

func (l *limited) String() string { return l.kept.String() }

func (l *limited) Write(b []byte) (int, error) {
	room := l.max - l.kept.Len()
	if len(b) > room && l.full != nil {
		l.full()
	}
	l.kept.Write(b[:min(len(b), room)])
	return len(b), nil
}

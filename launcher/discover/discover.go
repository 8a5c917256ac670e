// Package discover finds out which hosts there are, again and again, from a script that the user gives:
// every line that it writes is a host, as in Horovod's --host-discovery-script.
//
// Watch runs in the caller's goroutine and has no other; when it returns, the script's processes have
// ended. It contacts no host, and decides nothing about them.
package discover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"gorun/launcher/hosts"
)

const (
	// maxOutput bounds what a script may write.
	maxOutput = 1 << 20
	// held is how long a script that has ended may leave its output open to children.
	held = time.Second
)

// Script is a command for the shell that lists the hosts, one a line: host:slots, host slots=N or host.
type Script struct {
	Command string
	Slots   int           // of a host whose line does not say; 0: every line must
	Every   time.Duration // between the beginnings of two runs
	Limit   time.Duration // for one run
	Env     []string
}

// Watch runs the script until ctx ends, and hands on every list that differs from the one before. If the
// very first run fails, so does Watch; failures after that are noted (the first of a row, then ever more
// rarely), and the list stays what it was.
func (s Script) Watch(ctx context.Context, found func([]hosts.Host), note func(format string, args ...any)) error {
	var last []hosts.Host
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

// Error is a run of a script that has told of no hosts.
type Error struct {
	Command string
	Err     error
}

func (e *Error) Error() string {
	return fmt.Sprintf("run host discovery script %s: %v", e.Command, e.Err)
}
func (e *Error) Unwrap() error { return e.Err }

// Run runs the script once. Its errors are of the type *Error.
func (s Script) Run(ctx context.Context) ([]hosts.Host, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.Limit, fmt.Errorf("it takes longer than %v", s.Limit))
	defer cancel()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	cmd := exec.CommandContext(ctx, "/bin/sh", "-c", s.Command)
	cmd.Env = s.Env
	cmd.WaitDelay = held
	stdout, stderr := limited{max: maxOutput}, limited{max: 4 << 10}
	stdout.full = func() { stop(fmt.Errorf("it writes more than %d bytes", maxOutput)) }
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := runInGroup(cmd)
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		if said := strings.TrimSpace(stderr.String()); said != "" {
			err = fmt.Errorf("%w: %s", err, lastLine(said))
		}
		return nil, &Error{s.Command, err}
	}
	list, err := parse(stdout.String(), s.Slots)
	if err != nil {
		return nil, &Error{s.Command, err}
	}
	return list, nil
}

// parse reads what a script wrote. Nothing is no hosts, not an error.
func parse(text string, slots int) ([]hosts.Host, error) {
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

func lastLine(text string) string { return text[strings.LastIndexByte(text, '\n')+1:] }

// limited keeps the first bytes written to it. The buffer is not embedded: its ReadFrom knows no limit.
type limited struct {
	kept bytes.Buffer
	max  int
	full func() // if not nil, called with what is more than that
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

package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/launcher/failure"
	"gorun/launcher/ssh"
	"gorun/launcher/talk"
	"gorun/rendezvous/standing"
)

func TestRetry(t *testing.T) {
	for _, tt := range []struct {
		name     string
		steps    []string // at which the attempts fail; then one succeeds
		patience time.Duration
		attempts int
		want     string
	}{
		{"the first succeeds", nil, 0, 1, ""},
		{"DNS, then the port", []string{"resolve", "resolve", "connect"}, time.Minute, 4, ""},
		{"no patience", []string{"resolve"}, 0, 1, "a: resolve: no"},
		{"a refused key is not offered again", []string{"connect", "authenticate"}, time.Minute, 2, "a: authenticate: no"},
		{"a host is paused", []string{"handshake!", "connect", "authenticate!"}, 0, 4, ""},
		{"a host that does not stand still", []string{"handshake"}, time.Minute, 1, "a: handshake: no"},
		{"connections break, and then there is no way", []string{"start-", "upload-", "connect", "start daemon-"}, 0, 5, ""},
		{"patience ends with connections that break", []string{"start-"}, time.Nanosecond, 1, "a: start: the connection broke (for 1ns)"},
		{"a host that is paused, and then refuses a key", []string{"handshake!", "authenticate"}, 0, 2, "a: authenticate: no"},
		{"patience ends with a host that is paused", []string{"handshake!"}, time.Nanosecond, 1, "a: handshake: the host is paused (for 1ns)"},
		{"patience ends", []string{"connect", "connect", "connect"}, time.Nanosecond, 1, "a: connect: no (for 1ns)"},
	} {
		attempts := 0
		r := retry{tt.patience, time.Minute, time.Millisecond, 2 * time.Millisecond}
		if tt.patience == time.Nanosecond {
			r.start = tt.patience
		}
		d, err := r.dial(context.Background(), "a", func(context.Context, string) (*talk.Daemon, error) {
			attempts++
			if attempts <= len(tt.steps) {
				step, still := strings.CutSuffix(tt.steps[attempts-1], "!")
				step, broken := strings.CutSuffix(step, "-")
				failed := &failure.HostError{Host: "a", Step: step, Err: errors.New("no")}
				switch {
				case still:
					failed.Err = ssh.ErrPaused
				case broken:
					failed.Err = ssh.ErrBroken
				}
				return nil, failed
			}
			return &talk.Daemon{}, nil
		})
		if tt.want == "" && (err != nil || d == nil) || tt.want != "" && (err == nil || err.Error() != tt.want) || attempts != tt.attempts {
			t.Errorf("%s: %d attempts, error %v; want %d, %q", tt.name, attempts, err, tt.attempts, tt.want)
		}
	}
}

func TestRetryEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	r := retry{time.Hour, 0, time.Hour / 4, time.Hour}
	_, err := r.dial(ctx, "a", func(context.Context, string) (*talk.Daemon, error) {
		cancel()
		return nil, &failure.HostError{Host: "a", Step: "connect", Err: errors.New("no")}
	})
	if err == nil || !strings.Contains(err.Error(), "connect: no") {
		t.Errorf("got %v", err)
	}
}

// TestHungUpIsExplained: a daemon that hangs up is there, so no hint asks whether it is.
func TestHungUpIsExplained(t *testing.T) {
	l := must.Listen(t)
	defer l.Close()
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			conn.Close()
		}
	}()
	key, err := standing.ParseKey(fmt.Appendf(nil, "%x", sha256.Sum256(nil)))
	must.Do(t, err)
	_, err = standing.Client{Key: key}.Members(t.Context(), l.Addr().String())
	host, ok := errors.AsType[*failure.HostError](explainCluster(l.Addr().String(), err))
	if !ok || !errors.Is(host.Err, standing.ErrHungUp) || !strings.Contains(host.Hint, "its log says why") {
		t.Errorf("%+v, of %v", host, err)
	}
}

// A cluster that starts is asked again, one that refuses for good is not.
func TestRetryCluster(t *testing.T) {
	errs := map[string]error{
		"name":  &net.DNSError{Err: "no such host", Name: "gorun"},
		"port":  &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("refused")},
		"small": &standing.RefusedError{Text: "no room", Small: true},
		"no":    &standing.RefusedError{Text: "another version"},
		"key":   standing.ErrKey,
	}
	for _, tt := range []struct {
		name     string
		answers  []string // and then slots
		patience time.Duration
		want     string
		notes    []string
	}{
		{"slots at once", nil, 0, "", nil},
		{"no patience", []string{"small"}, 0, "no room", nil},
		{"a cluster that grows", []string{"name", "name", "port", "small", "small"}, time.Minute, "", []string{"no such host", "refused", "no room"}},
		{"another version", []string{"port", "no"}, time.Minute, "another version", []string{"refused"}},
		{"another key", []string{"key"}, time.Minute, standing.ErrKey.Error(), nil},
	} {
		var notes []string
		asked := 0
		err := retry{tt.patience, 0, time.Millisecond, 2 * time.Millisecond}.reserve(context.Background(),
			func(text string) { notes = append(notes, text) },
			func() error {
				if asked++; asked <= len(tt.answers) {
					return fmt.Errorf("reserve slots: %w", errs[tt.answers[asked-1]])
				}
				return nil
			})
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.HasSuffix(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
		if !slices.EqualFunc(notes, tt.notes, strings.HasSuffix) {
			t.Errorf("%s: notes %q, want the ends %q", tt.name, notes, tt.notes)
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	err := retry{time.Minute, 0, time.Hour, time.Hour}.reserve(ctx, func(string) { cancel(failure.ErrStopped) }, func() error { return errs["small"] })
	if !errors.Is(err, errs["small"]) { // an hour is more than its patience
		t.Errorf("a wait beyond its patience ends with %v", err)
	}
	err = retry{time.Hour, 0, time.Minute, time.Minute}.reserve(ctx, func(string) { cancel(failure.ErrStopped) }, func() error { return errs["small"] })
	if !errors.Is(err, failure.ErrStopped) {
		t.Errorf("a wait that is stopped ends with %v", err)
	}
}

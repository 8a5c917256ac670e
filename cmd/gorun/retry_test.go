package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"gorun/launcher/failure"
	"gorun/launcher/ssh"
	"gorun/launcher/talk"
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

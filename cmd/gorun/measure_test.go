package main

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"gorun/launcher"
	"gorun/topology"
)

// TestMerged: an edge of which first the round trip and then the bandwidth was measured is one edge.
func TestMerged(t *testing.T) {
	got := merged([]topology.Edge{{From: 1, RTT: 5e-5}, {From: 2, RTT: 6e-5}},
		[]topology.Edge{{From: 2, Bandwidth: 1e9}, {From: 1, RTT: 4e-5, Bandwidth: 2e9}, {To: 2, Bandwidth: 3e9}})
	want := []topology.Edge{{From: 1, RTT: 4e-5, Bandwidth: 2e9}, {From: 2, RTT: 6e-5, Bandwidth: 1e9}, {To: 2, Bandwidth: 3e9}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, should be %+v", got, want)
	}
}

// interrupts is a Dialer whose agents never answer after what is said here, and a user who stops gorun while it waits for them.
type interrupts struct {
	said string
	stop func()
}

func (d interrupts) Dial(context.Context, string) (*launcher.Daemon, error) {
	r, w := io.Pipe()
	return &launcher.Daemon{In: stopping{d.stop, d.said == ""}, Out: io.MultiReader(strings.NewReader(d.said), r), Close: w.Close,
		Wait: func() (string, error) { return "", errors.New("signal: killed") }}, nil
}

// stopping stops at its first order, or at one to measure.
type stopping struct {
	stop    func()
	atFirst bool
}

func (s stopping) Write(order []byte) (int, error) {
	if s.atFirst || !strings.Contains(string(order), "secret") { // the first order has the secret
		s.stop()
	}
	return len(order), nil
}

func (stopping) Close() error { return nil }

// TestInterruptedMeasurement: whoever stops a measurement is told that, and not that a host failed.
func TestInterruptedMeasurement(t *testing.T) {
	for when, said := range map[string]string{"while agents start": "", "while they measure": `{"port": 9}` + "\n"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		d := interrupts{said, func() { cancel(launcher.ErrStopped) }}
		edges, err := measureAll(ctx, d, named([]string{"a", "b", "c"}), nil, time.Minute)
		var blamed *launcher.HostError
		if !errors.Is(err, launcher.ErrStopped) || errors.As(err, &blamed) || edges != nil {
			t.Errorf("%s: %v, %v", when, edges, err)
		}
	}
}

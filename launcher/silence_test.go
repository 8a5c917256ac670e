package launcher

import (
	"testing"
	"time"

	"gorun/topology"

	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
)

func TestSilence(t *testing.T) {
	s := silences{timing: liveness.Default(), since: map[int]time.Time{}}
	start := time.Unix(1000, 0)
	at := func(sec float64) time.Time { return start.Add(time.Duration(sec * float64(time.Second))) }
	look := func(now, last float64, want string) {
		t.Helper()
		s.tick(at(now))
		got, e := s.look(at(now), 3, at(last))
		if got != want || (want == "") != (e == HostEvent{}) {
			t.Errorf("after %v s: %q (%v), want %q", now, got, e, want)
		}
		if e.State != "" && e.Since != start {
			t.Errorf("after %v s: %s since %v, want %v", now, e.State, e.Since, start)
		}
	}
	if got, _ := s.look(start, 3, time.Time{}); got != "" {
		t.Errorf("a host that was never heard %s", got)
	}
	for now := 0.0; now < 5; now += 0.25 {
		look(now, 0, "")
	}
	look(5, 0, "has been silent for 5 s")
	look(5.25, 0, "")
	look(5.5, 5.4, "is back after 5 s")
	look(5.75, 5.4, "")
	// The launcher stood still, and with it all that it hears.
	look(60, 5.4, "")
	look(60.25, 5.4, "")
	look(60.5, 60.4, "")
}

func TestHeard(t *testing.T) {
	var h heard
	start := time.Unix(1000, 0)
	if !h.last(start).IsZero() {
		t.Error("heard before it spoke")
	}
	h.reading(start)
	if got := h.last(start.Add(time.Minute)); got != start {
		t.Errorf("last heard at %v", got)
	}
	h.has(start) // and then the terminal takes nothing
	if now := start.Add(time.Minute); h.last(now) != now {
		t.Error("a host is silent because nobody reads")
	}
}

func TestLease(t *testing.T) {
	j := &job{spec: &Spec{}, ready: map[int]*wire.Ready{0: {}, 1: {Host: topology.Host{GPUs: []topology.GPU{{Mode: "passthrough"}}}}}}
	if got := j.lease(); got != 30*time.Second {
		t.Errorf("lease %v", got)
	}
	j.ready[0].Host.GPUs = []topology.GPU{{Mode: "vgpu"}}
	if got := j.lease(); got != 120*time.Second {
		t.Errorf("lease %v with a vGPU", got)
	}
	j.spec.Lease = 7 * time.Second
	if got := j.lease(); got != 7*time.Second {
		t.Errorf("lease %v, 7 s were asked for", got)
	}
}

package survey

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gorun/launcher/failure"
	"gorun/launcher/talk"
	"gorun/topology"
	"gorun/topology/doctor"
	"gorun/topology/measure"
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

// interrupts is a Dialer whose agents never answer after this text, and a user who stops gorun while it waits for them.
type interrupts struct {
	said string
	stop func()
}

func (d interrupts) Dial(context.Context, string) (*talk.Daemon, error) {
	r, w := io.Pipe()
	return &talk.Daemon{In: stopping{d.stop, d.said == ""}, Out: io.MultiReader(strings.NewReader(d.said), r),
		Close: w.Close, Wait: func() (string, error) { return "", errors.New("signal: killed") }}, nil
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

// TestInterruptedMeasurement: a user who stops a measurement reads that, and not that a host failed.
func TestInterruptedMeasurement(t *testing.T) {
	for when, said := range map[string]string{"while agents start": "", "while they measure": `{"port": 9}` + "\n"} {
		ctx, cancel := context.WithCancelCause(t.Context())
		d := interrupts{said, func() { cancel(failure.ErrStopped) }}
		edges, err := Measure(ctx, d, named([]string{"a", "b", "c"}), nil, time.Minute, func(string) {})
		var blamed *failure.HostError
		if !errors.Is(err, failure.ErrStopped) || errors.As(err, &blamed) || edges != nil {
			t.Errorf("%s: %v, %v", when, edges, err)
		}
	}
}

// firewalled is a Dialer of agents, some of which do not reach each other.
type firewalled struct {
	t       *testing.T
	blocked func(from, to string) bool
}

func (d firewalled) Dial(_ context.Context, host string) (*talk.Daemon, error) {
	orders, in := io.Pipe()
	out, answers := io.Pipe()
	var working sync.WaitGroup
	working.Go(func() {
		defer answers.Close()
		heard, say := json.NewDecoder(orders), json.NewEncoder(answers)
		names := strings.Split("abcdefghij", "")
		for first := true; ; first = false {
			var order measure.Order
			if heard.Decode(&order) != nil {
				return
			}
			answer := measure.Answer{Result: measure.Result{RTT: 1e-4}}
			switch {
			case first:
				answer = measure.Answer{Port: 9}
			case order.Bytes > 0 && len(order.Addrs) == 0: // what has come, and that nothing goes to the other
				answer.Packets.Arrive = order.Bytes
			case d.blocked(host, names[order.Host]):
				answer = measure.Answer{Error: "no route to host"}
			case order.Sending > 0:
				answer.Bandwidth = 1e9
			}
			if say.Encode(answer) != nil {
				return
			}
		}
	})
	end := func() error { in.Close(); out.Close(); working.Wait(); return nil }
	return &talk.Daemon{In: in, Out: out, Close: end, Wait: func() (string, error) { return "", end() }}, nil
}

// TestBlockedWays: hosts that do not reach each other are warned of, in one line, and the ring does not go there; all
// others are measured. If no one reaches anyone, that is an error.
func TestBlockedWays(t *testing.T) {
	for hosts, wide := range map[int]int{4: 10, 10: 0} {
		names := strings.Split("abcdefghij", "")[:hosts]
		run := func(blocked func(from, to string) bool) (edges []topology.Edge, warned []string, err error) {
			edges, err = Measure(t.Context(), firewalled{t, blocked}, named(names), nil, time.Minute, func(note string) { warned = append(warned, note) })
			return edges, warned, err
		}
		edges, warned, err := run(func(from, to string) bool { return from+to == "bc" || from+to == "cb" })
		if err != nil || len(warned) != 1 || !strings.Contains(warned[0], "c: measure the path to b: no route to host; ") {
			t.Fatalf("%d hosts: warned %q, %v", hosts, warned, err)
		}
		found := 0
		for _, e := range edges {
			if between := e.From+e.To == 3 && e.From*e.To == 2; between != e.Blocked || between && e.RTT+e.Bandwidth > 0 {
				t.Errorf("%d hosts: the way was measured or not: %+v", hosts, e)
			}
			if e.Bandwidth > 0 {
				found++
			}
		}
		if wide > 0 && found != wide {
			t.Errorf("%d hosts: %d bandwidths, should be %d", hosts, found, wide)
		}
		order := topology.Order(named(names), edges).Order
		for i, from := range order {
			if to := order[(i+1)%hosts]; from+to == 3 && from*to == 2 {
				t.Errorf("%d hosts: ring %v goes where no data gets through", hosts, order)
			}
		}
		_, warned, err = run(func(from, to string) bool { return from == "a" || to == "a" })
		want := fmt.Sprintf("%d paths could not be measured (b: measure the path to a: no route to host; c: measure the path to a: no route to host; d: measure the path to a: no route to host", hosts-1)
		if more := hosts - 4; more > 0 {
			want += fmt.Sprintf("; and %d more", more)
		}
		if want += "); the ring takes them only if there are no others"; err != nil || len(warned) != 1 || warned[0] != want {
			t.Errorf("%d hosts, a firewall before one of them: warned %q, should be %q, %v", hosts, warned, want, err)
		}
		edges, warned, err = run(func(string, string) bool { return true })
		var blamed *failure.HostError
		if !errors.As(err, &blamed) || edges != nil || len(warned) > 0 {
			t.Errorf("nobody reaches anybody: %v, warned %q, %v", edges, warned, err)
		}
	}
}

// named returns hosts that have only names.
func named(names []string) []topology.Host {
	hosts := make([]topology.Host, len(names))
	for i, name := range names {
		hosts[i].Name = name
	}
	return hosts
}

// TestTryPaths: each path is tried by itself, and what cannot be is no good news of it.
func TestTryPaths(t *testing.T) {
	var all []doctor.Answer
	for i, name := range []string{"a", "b", "c"} {
		nic := topology.NIC{Name: "eth0", MTU: 9000, Up: true, Addrs: []string{fmt.Sprintf("10.0.0.%d/24", i+1)}}
		all = append(all, doctor.Answer{Facts: doctor.Facts{Host: topology.Host{Name: name, NICs: []topology.NIC{nic}}}})
	}
	paths := doctor.Paths(all, nil)
	d := firewalled{t, func(from, to string) bool { return from+to == "ab" }}
	for i, tried := range tryPaths(t.Context(), d, all, nil, paths) {
		w := paths[i]
		want := doctor.Tried{Arrive: 9000, Bandwidth: 1e9}
		if w.From+w.To == "ab" {
			want = doctor.Tried{TCP: "no route to host", UDP: "no route to host", Arrive: 9000}
		}
		if tried != want {
			t.Errorf("from %s to %s: %+v, want %+v", w.From, w.To, tried, want)
		}
	}
	away := answers{"a": {dial: errors.New("refused")}, "b": {stdout: "{}"}, "c": {stdout: "{}"}}
	for i, tried := range tryPaths(t.Context(), away, all[:2], nil, paths[:1]) {
		if tried.Err == nil || tried.Err.Error() != "refused" {
			t.Errorf("path %d of a host that is away: %+v", i, tried)
		}
	}
}

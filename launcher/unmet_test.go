package launcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/launcher/elastic"
	"gorun/launcher/failure"
	"gorun/launcher/talk"
	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
)

// TestUnmetHosts: users read once for each reason that a host cannot be used, however often it is tried; and of each
// loss of one that was.
func TestUnmetHosts(t *testing.T) {
	var notes []string
	j, err := newJob(&Spec{Elastic: &ElasticSpec{Policy: elastic.Policy{NP: 2, MinNP: 2, Timeout: 10 * time.Hour}}, Note: func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }})
	must.Do(t, err)
	defer j.membership.tick.Stop()
	h := j.addHost("a")
	j.membership.policy.Step(0, elastic.Discovered{Hosts: []elastic.DiscoveredHost{{Name: "a", Slots: 1}}})
	for n, why := range []string{"no route", "no answer", "no route", "ready", "no route"} {
		if why == "ready" {
			j.handle(talk.Event{Host: h.id, Msg: &wire.Ready{}})
		}
		j.handle(talk.Event{Host: h.id, Err: &failure.HostError{Host: "a", Step: "connect", Err: errors.New(why)}})
		started := false
		for _, a := range j.membership.policy.Step(time.Duration(n+1)*time.Hour, elastic.Tick{}) { // it is tried again
			if s, ok := a.(elastic.StartHost); ok {
				started, j.hosts = true, j.hosts[:s.Host]
				h = j.addHost("a")
			}
		}
		if !started {
			t.Fatalf("it is not tried again: %q", notes)
		}
	}
	notes = slices.DeleteFunc(notes, func(s string) bool {
		return !strings.HasPrefix(s, "gorun: a cannot") && !strings.HasPrefix(s, "gorun: a is lost")
	})
	want := "gorun: a cannot be used: connect: no route; gorun: a cannot be used: connect: no answer; gorun: a is lost: connect: ready; gorun: a cannot be used: connect: no route"
	if got := strings.Join(notes, "; "); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// nowhere is a Dialer that reaches no host.
type nowhere struct{}

func (nowhere) Dial(_ context.Context, host string) (*talk.Daemon, error) {
	return nil, &failure.HostError{Host: host, Step: "connect", Err: errors.New("no route")}
}

// TestTriedAgain: however often a host is tried that was never up, the job has one host of its number.
func TestTriedAgain(t *testing.T) {
	j, err := newJob(&Spec{Dial: nowhere{}, Note: func(string, ...any) {}, Elastic: &ElasticSpec{Policy: elastic.Policy{NP: 1}}})
	must.Do(t, err)
	defer j.membership.tick.Stop()
	var talks sync.WaitGroup
	defer talks.Wait()
	j.converse = j.conversations(t.Context(), &talks)
	for range 3 {
		j.startHost(elastic.StartHost{Host: 0, Name: "a"})
		if len(j.hosts) != 1 || j.hosts[0].ended {
			t.Fatalf("%d hosts, of which the first has ended: %v", len(j.hosts), j.hosts[0].ended)
		}
		if j.handle(<-j.events); !j.hosts[0].ended {
			t.Fatal("it has not ended")
		}
	}
}

// TestLostBy: what is known of a host that is lost decides when it is tried again.
func TestLostBy(t *testing.T) {
	for name, tc := range map[string]struct {
		how  func(h *host)
		want elastic.HostLost
	}{
		"it does not answer":                   {func(h *host) { h.failure.Step = "connect" }, elastic.HostLost{}},
		"it answers, and that is all":          {func(h *host) { h.failure.Step = "upload"; h.Answers(true) }, elastic.HostLost{Alive: true}},
		"it does not let us in":                {func(h *host) { h.failure.Step = "authenticate"; h.Answers(true) }, elastic.HostLost{Refused: true}},
		"a bastion does not let us in":         {func(h *host) { h.failure.Step = "authenticate (bastion b)" }, elastic.HostLost{Refused: true}},
		"it is not the one that is known":      {func(h *host) { h.failure.Step = "host key" }, elastic.HostLost{Refused: true}},
		"its daemon has ended":                 {func(h *host) { h.Started(renewed(liveness.Line{}, true)) }, elastic.HostLost{Ended: true}},
		"its daemon cannot be reached":         {func(h *host) { h.Started(renewed(liveness.Line{}, true)); h.evicted = &eviction{} }, elastic.HostLost{}},
		"others do not hear it":                {func(h *host) { h.evicted = &eviction{alive: true} }, elastic.HostLost{Alive: true}},
		"it says itself that it ends":          {func(h *host) { h.evicted = &eviction{own: true, alive: true} }, elastic.HostLost{Ended: true}},
		"nobody hears it":                      {func(h *host) { h.evicted = &eviction{} }, elastic.HostLost{}},
		"a connection ended, nobody knows how": {func(h *host) { h.Started(renewed(liveness.Line{}, false)) }, elastic.HostLost{}},
	} {
		h := &host{id: 3, failure: &failure.HostError{}}
		tc.how(h)
		tc.want.Host, tc.want.Reason = 3, "why"
		if got := h.lostBy("why"); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

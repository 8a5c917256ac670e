package launcher

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/launcher/elastic"
	"gorun/launcher/talk"
	"gorun/rendezvous/wire"
)

// mum is an Output that writes nothing.
type mum struct{ Output }

func (mum) Close(int)         {}
func (mum) Tail(int) []string { return nil }

// TestDoomedWorlds: a mistake of the script ends one rank after the other. No line reports the worlds on the way to the
// end of the job, but one that lasts has a line, one after which the job ends well, and, at once, one that follows a
// loss.
func TestDoomedWorlds(t *testing.T) {
	const told = "gorun: epoch 2: 1 rank on 1 host, because process 0 on a exited with code "
	for name, tc := range map[string]struct {
		first  wire.Exited
		last   *wire.Exited // nil if it goes on
		atOnce int          // how often the world of the last rank is reported
		later  int
	}{
		"all ranks":                  {wire.Exited{Code: 1}, &wire.Exited{Process: 1, Code: 1}, 0, 0},
		"one rank":                   {wire.Exited{Code: 1}, nil, 0, 1},
		"one rank, before a success": {wire.Exited{Code: 1}, &wire.Exited{Process: 1}, 1, 1},
		"one rank, after a loss":     {wire.Exited{Code: 137, Signal: 9}, &wire.Exited{Process: 1, Code: 1}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var notes strings.Builder
			j, err := newJob(&Spec{Elastic: &ElasticSpec{Policy: elastic.Policy{NP: 2, MinNP: 1, ResetLimit: -1}, Admit: func(int, string) error { return nil }},
				Output: mum{}, Note: func(format string, args ...any) { fmt.Fprintf(&notes, format+"\n", args...) }})
			must.Do(t, err)
			defer j.membership.tick.Stop()
			for id, name := range []string{"a", "b"} {
				j.addHost(name)
				j.hosts[id].up, j.hosts[id].ready = true, &wire.Ready{}
			}
			j.membership.policy.Step(0, elastic.Discovered{Hosts: []elastic.DiscoveredHost{{Name: "a", Slots: 1}, {Name: "b", Slots: 1}}})
			j.decide(elastic.HostUp{Host: 0})
			j.decide(elastic.HostUp{Host: 1})
			j.handle(talk.Event{Host: 0, Msg: &tc.first})
			if tc.last != nil {
				j.handle(talk.Event{Host: 1, Msg: tc.last})
			}
			if n := strings.Count(notes.String(), told); n != tc.atOnce || j.membership.epoch != 2 || j.stopping != (tc.last != nil) {
				t.Errorf("epoch %d is told of %d times, want %d; stopping %v\n%s", j.membership.epoch, n, tc.atOnce, j.stopping, &notes)
			}
			if j.tell(j.news.lasting(time.Now().Add(settleTime))); strings.Count(notes.String(), told) != tc.later {
				t.Errorf("later that is not reported %d times:\n%s", tc.later, &notes)
			}
		})
	}
}

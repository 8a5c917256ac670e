package launcher

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"gorun/contrib/must"
	"gorun/launcher/elastic"
	"gorun/launcher/hosts"
	"gorun/launcher/plan"
)

// TestFixedWorldIsThePlacement: the policy of a job of fixed size places its ranks just as they were placed for the user.
func TestFixedWorldIsThePlacement(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		var list []hosts.ListedHost
		for _, name := range []string{"c", "a", "b", "e", "d"}[:1+rng.IntN(5)] {
			list = append(list, hosts.ListedHost{Name: name, Slots: 1 + rng.IntN(3)})
		}
		parts := []plan.Part{{Hosts: list, Ranks: 1 + rng.IntN(len(list))}}
		if rng.IntN(2) == 0 {
			parts = append(parts, plan.Part{Hosts: list[rng.IntN(len(list)):], Ranks: 1})
		}
		want, err := plan.PlaceParts(parts, plan.Policy{RankByNode: rng.IntN(2) == 0, Oversubscribe: true})
		must.Do(t, err)
		c := newMembership(&Spec{Placement: want})
		c.tick.Stop()
		var got plan.Placement
		for _, a := range c.policy.Step(0, elastic.Discovered{Hosts: c.first}) {
			for _, a := range c.policy.Step(0, elastic.HostUp{Host: a.(elastic.StartHost).Host}) {
				if w, ok := a.(elastic.Roster); ok {
					got, _ = placementOf(w, func(id int) string { return c.first[id].Name })
				}
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("of %+v\n got %+v\nwant %+v", parts, got, want)
		}
	}
}

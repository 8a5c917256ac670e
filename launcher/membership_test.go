package launcher

import (
	"fmt"
	"time"

	"gorun/launcher/elastic"
)

// flexible is the policy of an elastic job that goes on with one rank.
var flexible = elastic.Policy{NP: 1, MinNP: 1, ResetLimit: -1, Timeout: time.Minute}

// membershipOf returns what decides about a job with one rank on each of its hosts, which are ready and got their rosters, after what
// happened then. Nothing that the policy wants meanwhile is done.
func membershipOf(hosts int, policy elastic.Policy, then ...elastic.Event) *membership {
	return membershipBy(hosts, elastic.Config{Policy: policy}, then...)
}

func membershipBy(hosts int, config elastic.Config, then ...elastic.Event) *membership {
	c := &membership{config: config, began: time.Now(), slots: map[string]int{},
		admit: func(int, string) error { return nil }, world: func(int, []string) {}}
	var list elastic.Discovered
	for id := range hosts {
		list.Hosts = append(list.Hosts, elastic.DiscoveredHost{Name: fmt.Sprint("h", id), Slots: 1})
		if config.OnFailure == elastic.EndJob {
			c.config.Ranks = append(c.config.Ranks, id)
		}
	}
	c.policy = elastic.New(c.config)
	c.policy.Step(0, list)
	for id := range hosts {
		c.policy.Step(0, elastic.HostUp{Host: id})
	}
	for _, ev := range then {
		c.policy.Step(0, ev)
	}
	return c
}

// fixedMembership is membershipOf for a job of fixed size whose ranks run.
func fixedMembership(hosts int) *membership {
	var started []elastic.Event
	for id := range hosts {
		started = append(started, elastic.Started{Process: id})
	}
	return membershipOf(hosts, elastic.Fixed(hosts), started...)
}

// laterMembership is membershipOf for a job of fixed size whose ranks run, and have not asked for a world yet.
func laterMembership(hosts int) *membership {
	config := elastic.Config{Policy: elastic.Fixed(hosts), RanksFirst: true, FormAfter: time.Hour}
	return membershipBy(hosts, config)
}

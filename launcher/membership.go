package launcher

import (
	"cmp"
	"math/rand/v2"
	"time"

	"gorun/launcher/elastic"
)

// Package elastic decides who is in a job. This file holds what it decides on, and decide.go carries its decisions out.
//
// The ranks of a job of fixed size start as soon as all its hosts are ready. The hosts form their world when the first
// rank asks for it: many programs never need one, and the others ask late. A job whose ranks do
// not ask gets a world too, a moment after the last of them has started, because daemons watch each other only in one.

// policyTick is the interval of elastic.Tick.
const policyTick = 200 * time.Millisecond

// membership decides who is in the job. Package elastic makes the decisions.
type membership struct {
	policy *elastic.Machine
	config elastic.Config
	began  time.Time
	tick   *time.Ticker
	epoch  uint32 // of the last roster
	taken  uint32 // of the last roster of the launcher that had the job before; 0 for none
	untold bool   // hosts may not know the spares of that launcher, or which it let go
	hosts  []int  // host ids of the last roster; nil before the first

	first []elastic.DiscoveredHost             // the hosts of a job of fixed size
	lists <-chan []elastic.DiscoveredHost      // of the hosts of an elastic job, at once and whenever they change
	admit func(process int, host string) error // is called for every new process
	world func(ranks int, hosts []string)      // is called for every world

	held  []elastic.Event // until all hosts that were taken over have given account, and while no host is heard
	names []string        // of hosts, in the order in which they were discovered
	slots map[string]int  // of hosts, as discovered last

	hears func(host int) bool // whether a host was heard lately
}

func newMembership(spec *Spec) *membership {
	c := &membership{began: time.Now(), slots: map[string]int{},
		admit: func(int, string) error { return nil }, world: func(int, []string) {}, hears: func(int) bool { return true }}
	if e := spec.Elastic; e != nil {
		c.config = elastic.Config{Policy: e.Policy, Jitter: rand.Float64, Hears: func(host int) bool { return c.hears(host) }}
		c.lists, c.admit = e.Hosts, e.Admit
		if e.World != nil {
			c.world = e.World
		}
	} else {
		c.config = fixedConfig(spec)
		for _, h := range spec.Placement.Hosts {
			c.first = append(c.first, elastic.DiscoveredHost{Name: h.Name, Slots: len(h.Ranks)})
		}
	}
	c.policy, c.tick = elastic.New(c.config), time.NewTicker(policyTick)
	return c
}

// fixedConfig describes a job of fixed size, whose ranks are placed. They start before their first world, unless the
// user asked about the edges between hosts: then the world comes first, so that the ring is shown before ranks write
// anything, and edges are measured in short jobs too.
func fixedConfig(spec *Spec) elastic.Config {
	c := elastic.Config{Policy: elastic.Fixed(len(spec.Placement.Ranks)), RanksFirst: !spec.Verbose && spec.Measured == nil,
		FormAfter: cmp.Or(spec.formAfter, formAfter), StartTimeout: spec.StartTimeout}
	for _, r := range spec.Placement.Ranks {
		c.Ranks = append(c.Ranks, r.Host)
	}
	return c
}

// toward returns the name of another host, by which a host finds its network path to the others. It prefers a host that
// was started; for the first host it takes one that will be. "" for none.
func (m *membership) toward(name string, started hostList) string {
	for _, h := range started {
		if h.name != name {
			return bare(h.name)
		}
	}
	for _, other := range m.names {
		if other != name {
			return bare(other)
		}
	}
	return ""
}

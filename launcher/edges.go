package launcher

import (
	"math"

	"gorun/rendezvous/wire"
	"gorun/topology"
)

// network is what the job found out about the network between its hosts.
type network struct {
	shown   uint32              // epoch of the ring that the user saw last
	edges   map[int][]wire.Edge // by the host that measured them
	carried carried
}

// tellEdges tells what the job found out about the ways between its hosts, when it is over.
func (j *job) tellEdges() {
	edges := j.measured()
	if len(edges) == 0 {
		return
	}
	hosts := j.described()
	if j.spec.Measured != nil {
		j.spec.Measured(hosts, edges)
	}
	if !j.spec.Verbose {
		return
	}
	if order := j.lastRing(); len(order) > 1 {
		j.spec.Note("gorun: ways of the ring, at the end of the job:")
		ring := topology.Keep(hosts, edges, order)
		for _, leg := range ring.Legs(hosts, edges) {
			j.spec.Note("gorun:   %s → %s: %s", hosts[leg.From].Name, hosts[leg.To].Name, leg.Why)
		}
	}
	for _, site := range topology.Together(hosts, edges) {
		j.spec.Note("gorun: %s", site)
	}
}

// measured is what daemons told, by host ids. They are other machines: only what can be is taken.
func (j *job) measured() (edges []topology.Edge) {
	number := func(x float64) float64 {
		if x > 0 && !math.IsInf(x, 0) {
			return x
		}
		return 0
	}
	for _, h := range j.hosts {
		for _, e := range j.network.edges[h.id] {
			found := topology.Edge{From: h.id, To: e.To, RTT: number(e.RTT), Bandwidth: number(e.Bandwidth)}
			if e.To >= 0 && e.To < len(j.hosts) && e.To != h.id && found.RTT+found.Bandwidth > 0 {
				found.InJob = found.Bandwidth > 0
				edges = append(edges, found)
			}
		}
	}
	return edges
}

// lastRing is the ring of the last world, by host ids.
func (j *job) lastRing() (order []int) {
	last := uint32(0)
	for _, h := range j.hosts {
		if w := h.world; w.Epoch > last {
			last, order = w.Epoch, w.Order
		}
	}
	return order
}

// described are the hosts as they describe themselves, by id.
func (j *job) described() []topology.Host {
	hosts := make([]topology.Host, len(j.hosts))
	for i, h := range j.hosts {
		if ready := h.ready; ready != nil {
			hosts[i] = ready.Host
		}
		hosts[i].Name = h.name
	}
	return hosts
}

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

// tellEdges reports, at the end of the job, what was measured between its hosts.
func (j *job) tellEdges() {
	edges := j.network.measured(j.hosts)
	if len(edges) == 0 {
		return
	}
	hosts := j.hosts.described()
	if j.spec.Measured != nil {
		j.spec.Measured(hosts, edges)
	}
	if !j.spec.Verbose {
		return
	}
	if order := j.hosts.lastRing(); len(order) > 1 {
		j.spec.Note("gorun: edges of the ring, at the end of the job:")
		ring := topology.Keep(hosts, edges, order)
		for _, leg := range ring.Legs(hosts, edges) {
			j.spec.Note("gorun:   %s → %s: %s", hosts[leg.From].Name, hosts[leg.To].Name, leg.Why)
		}
	}
	for _, site := range topology.Together(hosts, edges) {
		j.spec.Note("gorun: %s", site)
	}
}

// measured returns what daemons have measured, by host ids, without values that cannot be true.
func (n *network) measured(hosts hostList) (edges []topology.Edge) {
	number := func(x float64) float64 {
		if x > 0 && !math.IsInf(x, 0) {
			return x
		}
		return 0
	}
	for _, h := range hosts {
		for _, e := range n.edges[h.id] {
			found := topology.Edge{From: h.id, To: e.To, RTT: number(e.RTT), Bandwidth: number(e.Bandwidth)}
			if e.To >= 0 && e.To < len(hosts) && e.To != h.id && found.RTT+found.Bandwidth > 0 {
				found.InJob = found.Bandwidth > 0
				edges = append(edges, found)
			}
		}
	}
	return edges
}

// lastRing returns the ring of the last world, by host ids.
func (l hostList) lastRing() (order []int) {
	last := uint32(0)
	for _, h := range l {
		if w := h.world; w.Epoch > last {
			last, order = w.Epoch, w.Order
		}
	}
	return order
}

// described returns how the hosts describe themselves, by id.
func (l hostList) described() []topology.Host {
	hosts := make([]topology.Host, len(l))
	for i, h := range l {
		if ready := h.ready; ready != nil {
			hosts[i] = ready.Host
		}
		hosts[i].Name = h.name
	}
	return hosts
}

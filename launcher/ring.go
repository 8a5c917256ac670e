package launcher

import (
	"fmt"
	"slices"
	"strings"

	"gorun/rendezvous/wire"
	"gorun/topology"
)

// showRing prints the ring of a world for a user who wants to know.
func (j *job) showRing(w wire.World) {
	if !j.spec.Verbose {
		return
	}
	for _, line := range describeRing(j.hosts.described(), w) {
		j.spec.Note("gorun: %s", line)
	}
}

// reordered notes that the ring of the present world has changed.
func (j *job) reordered(h *host, m *wire.Reordered) {
	unknown := func(id int) bool { return id < 0 || id >= len(j.hosts) }
	present := m.World.Epoch == h.world.Epoch
	if !present || slices.ContainsFunc(m.World.Order, unknown) || slices.ContainsFunc(m.Former, unknown) {
		return
	}
	for _, other := range j.hosts { // only one daemon reports it
		if w := &other.world; w.Epoch == m.World.Epoch {
			w.Order, w.Why = m.World.Order, m.World.Why
		}
	}
	if !j.spec.Verbose {
		return
	}
	j.spec.Note("gorun: epoch %d, the ring changes while the job runs: %s", m.World.Epoch, m.Text)
	j.spec.Note("gorun: epoch %d, former %s", m.World.Epoch, topology.Ring{Order: m.Former}.Line(j.hosts.described()))
	j.showRing(m.World)
}

// describeRing returns what was found on each host, and the order in which data goes round.
func describeRing(hosts []topology.Host, w wire.World) []string {
	var out []string
	for _, h := range hosts {
		out = append(out, describeHost(h))
	}
	out = append(out, fmt.Sprintf("epoch %d, %s", w.Epoch, topology.Ring{Order: w.Order}.Line(hosts)))
	if len(w.Order) > 1 && len(w.Why) == len(w.Order) {
		for i, id := range w.Order {
			next := w.Order[(i+1)%len(w.Order)]
			out = append(out, fmt.Sprintf("  %s → %s: %s", hosts[id].Name, hosts[next].Name, w.Why[i]))
		}
	}
	return out
}

func describeHost(h topology.Host) string {
	var nics []string
	for _, n := range h.NICs {
		if !n.Up || len(n.Addrs) == 0 {
			continue
		}
		s := n.Name
		if n.Driver != "" {
			s += " " + n.Driver
		}
		if n.Speed > 0 {
			s += fmt.Sprintf(" %d Mbit/s", n.Speed)
		}
		if n.Node >= 0 {
			s += fmt.Sprintf(" on node %d", n.Node)
		}
		nics = append(nics, s)
	}
	cpus, nodes := topology.Count(h.CPUs, "CPU"), topology.Count(max(len(h.Nodes), 1), "NUMA node")
	desc := fmt.Sprintf("%s: %s, %s", h.Name, cpus, nodes)
	if h.Platform != "" {
		desc += ", " + h.Platform
	}
	if len(nics) > 0 {
		desc += ", " + strings.Join(nics, ", ")
	}
	return desc
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

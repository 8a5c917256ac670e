package top

import (
	"fmt"

	"gorun/launcher/jobs"
)

// paceFrom is the least share of time for which data must wait at an edge that sets the pace.
const paceFrom = 0.2

// edge is what a host sends.
type edge struct {
	from, to string
	rate     float64 // bytes a second
	busy     float64 // share of the time in which data waits for the network
	path     float64 // bytes a second in that time, 0 if unknown
}

// edges returns what each host sends, by its name.
func (m Model) edges() map[string]edge {
	now, before := m.latest()
	seconds := now.at.Sub(before.at).Seconds()
	old := map[string]int{}
	for i, h := range before.state.Hosts {
		old[h.Name] = i
	}
	out := map[string]edge{}
	for _, h := range now.state.Hosts {
		e := edge{from: h.Name, to: h.Next}
		if i, ok := old[h.Name]; ok && seconds > 0 {
			was := before.state.Hosts[i]
			if h.SentBytes >= was.SentBytes {
				e.rate = float64(h.SentBytes-was.SentBytes) / seconds
			}
			if busy := float64(h.BusyUS-was.BusyUS) / 1e6; busy > 0 && h.BusyBytes >= was.BusyBytes {
				e.busy, e.path = min(busy/seconds, 1), float64(h.BusyBytes-was.BusyBytes)/busy
			}
		}
		out[h.Name] = e
	}
	return out
}

// ring returns the edges of the ring in their order, and the index of the one that sets its pace: data waits there for
// the network, longer than elsewhere. The index is -1 if there is none, as where ranks compute most of the time.
func (m Model) ring() (ring []edge, slowest int) {
	all := m.edges()
	slowest = -1
	for _, name := range m.hosts() {
		e := all[name]
		if e.to == "" {
			continue
		}
		if e.busy >= paceFrom && (slowest < 0 || e.busy > ring[slowest].busy) {
			slowest = len(ring)
		}
		ring = append(ring, e)
	}
	return ring, slowest
}

// pace names the edge that sets the pace of a ring.
func pace(e edge) string {
	return fmt.Sprintf("%s → %s sets the pace: %.0f%% of the time data waits for it, at %s/s", jobs.Clean(e.from), jobs.Clean(e.to), 100*e.busy, bytes(e.path))
}

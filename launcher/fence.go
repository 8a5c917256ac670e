package launcher

import (
	"fmt"
	"maps"

	"gorun/rendezvous/wire"
)

// fence is a barrier of MPI programs: when the ranks of all hosts have arrived, every host learns what all
// of them published.
type fence struct {
	number  uint64 // of the last one that all passed
	arrived map[int]bool
	pairs   map[string]string
}

// arrive takes the word of a host that its ranks are there.
func (f *fence) arrive(j *job, h *host, m *wire.Fence) {
	if m.Number != f.number+1 || f.arrived[h.id] {
		j.hostFailed(&HostError{Host: h.name, Step: "run", Err: fmt.Errorf("the daemon reports PMI barrier %d after %d", m.Number, f.number)})
		return
	}
	if f.arrived == nil {
		f.arrived, f.pairs = map[int]bool{}, map[string]string{}
	}
	f.arrived[h.id] = true
	maps.Copy(f.pairs, m.Pairs)
	if len(f.arrived) < len(j.hosts) {
		return
	}
	j.broadcast(&wire.Fence{Number: m.Number, Pairs: f.pairs})
	*f = fence{number: m.Number}
}

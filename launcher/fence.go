package launcher

import (
	"fmt"
	"maps"
	"slices"

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
		j.evict(h, &HostError{Host: h.name, Step: "run", Err: fmt.Errorf("the daemon reports PMI barrier %d after %d", m.Number, f.number)}, true)
		return
	}
	if f.arrived == nil {
		f.arrived, f.pairs = map[int]bool{}, map[string]string{}
	}
	f.arrived[h.id] = true
	maps.Copy(f.pairs, m.Pairs)
	if len(f.arrived) < len(j.hosts) {
		f.check(j)
		return
	}
	j.broadcast(&wire.Fence{Number: m.Number, Pairs: f.pairs})
	*f = fence{number: m.Number}
}

// check ends a job of which ranks wait for one that has ended, on a host of which not all have arrived.
func (f *fence) check(j *job) {
	if len(f.arrived) == 0 {
		return
	}
	for _, ended := range slices.Sorted(maps.Keys(j.exited)) {
		if host := j.hostOfRank[ended]; !f.arrived[host] {
			var waiting []int
			for rank, at := range j.hostOfRank {
				if f.arrived[at] {
					waiting = append(waiting, rank)
				}
			}
			j.stuck(j.hosts[host], &wire.Stuck{Ended: ended, Waiting: waiting})
			return
		}
	}
}

// stuck ends a job of which ranks wait in vain.
func (j *job) stuck(h *host, m *wire.Stuck) {
	j.stop(&HostError{Host: h.name, Step: "run", Err: fmt.Errorf("rank %d has ended, and %s will wait for it for ever, in a barrier of MPI's", m.Ended, listRanks(m.Waiting)),
		Hint: "all ranks of an MPI program call MPI_Init and MPI_Finalize, or none does", Code: ExitFailure})
}

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

// arrive notes that the ranks of a host have arrived. Those of the last of all hosts let everyone pass, with what all
// published.
func (f *fence) arrive(host, hosts int, m *wire.Fence) (passed *wire.Fence, err error) {
	if m.Number != f.number+1 || f.arrived[host] {
		return nil, fmt.Errorf("the daemon reports PMI barrier %d after %d", m.Number, f.number)
	}
	if f.arrived == nil {
		f.arrived, f.pairs = map[int]bool{}, map[string]string{}
	}
	f.arrived[host] = true
	maps.Copy(f.pairs, m.Pairs)
	if len(f.arrived) < hosts {
		return nil, nil
	}
	passed = &wire.Fence{Number: m.Number, Pairs: f.pairs}
	*f = fence{number: m.Number}
	return passed, nil
}

// missed returns the first of the ranks that have ended for which others wait in vain, since not all of its host have
// arrived, and those others. at is the host of each rank.
func (f *fence) missed(ended []int, at []int) (rank int, waiting []int, ok bool) {
	if len(f.arrived) == 0 {
		return 0, nil, false
	}
	for _, rank := range ended {
		if f.arrived[at[rank]] {
			continue
		}
		for other, host := range at {
			if f.arrived[host] {
				waiting = append(waiting, other)
			}
		}
		return rank, waiting, true
	}
	return 0, nil, false
}

// Package mpi holds what the MPI programs of a job share through the launcher. An MPI library asks the daemon of its
// host by the PMI protocol (worker/pmi), and the daemon asks the launcher for what concerns more than one host:
//
//   - A Fence is a barrier: each host contributes its ranks' data, and gets all data when the last host has.
//   - Names are the ports that ranks publish, look up and withdraw by name, for MPI_Comm_connect.
//
// The package is pure: messages of daemons go in, answers come out, and the launcher sends them.
package mpi

import (
	"fmt"
	"maps"

	"gorun/rendezvous/wire"
)

// Fence is a barrier of MPI programs: when the ranks of all hosts have arrived, every host learns what all
// of them published.
type Fence struct {
	number  uint64 // of the last one that all passed
	arrived map[int]bool
	pairs   map[string]string
}

// Arrive notes that the ranks of a host have arrived. When the last host arrives, all pass, with what all
// published.
func (f *Fence) Arrive(host, hosts int, m *wire.Fence) (passed *wire.Fence, err error) {
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
	*f = Fence{number: m.Number}
	return passed, nil
}

// Missed returns the first ended rank that others wait for in vain, because the ranks of its host have not Arrived, and
// those others. at is the host of each rank.
func (f *Fence) Missed(ended []int, at []int) (rank int, waiting []int, ok bool) {
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

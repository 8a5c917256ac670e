package launcher

import (
	"fmt"

	"gorun/launcher/failure"
	"gorun/launcher/why"
	"gorun/rendezvous/wire"
)

// fenceArrived handles a host's report that its ranks wait in a barrier.
func (j *job) fenceArrived(h *host, m *wire.Fence) {
	passed, err := j.mpi.fence.Arrive(h.id, len(j.hosts), m)
	switch {
	case err != nil:
		j.evict(h, &failure.HostError{Host: h.name, Step: "run", Err: err}, eviction{own: true})
	case passed != nil:
		j.hosts.broadcast(passed)
	default:
		j.checkFence()
	}
}

// checkFence ends a job whose ranks wait for one that has ended.
func (j *job) checkFence() {
	ended, _ := j.processes.exited()
	if rank, waiting, missed := j.mpi.fence.Missed(ended, j.processes.hosts()); missed {
		j.stop(stuckError(j.hosts[j.processes[rank].host].name, rank, waiting))
	}
}

// stuckError is the end of a job whose ranks wait in vain for one that has ended on a host.
func stuckError(host string, ended int, waiting []int) *failure.HostError {
	return &failure.HostError{Host: host, Step: "run", Code: failure.ExitFailure,
		Err:  fmt.Errorf("rank %d has ended, and %s will wait for it for ever, in a barrier of MPI's", ended, why.Ranks(waiting)),
		Hint: "all ranks of an MPI program call MPI_Init and MPI_Finalize, or none does"}
}

package launcher

import (
	"fmt"

	"gorun/launcher/failure"
	"gorun/launcher/mpi"
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

// mpiPrograms is what the MPI programs of a job share.
type mpiPrograms struct {
	fence  mpi.Fence
	names  mpi.Names
	warned bool // the user knows of a rank that its library keeps apart
}

// warn warns the user about the first rank that an MPI library keeps apart from the others.
func (p *mpiPrograms) warn(s *Spec, host string, m *wire.Alone) {
	if p.warned || s.IfAlone == wire.AloneEnds {
		return // with AloneEnds the error explains it
	}
	p.warned = true
	remedy := "does anything around it take away PMI_FD or PMI_RANK?"
	switch m.Library {
	case "Open MPI":
		remedy = "start it by: mpirun --mca plm_rsh_agent 'gorun rsh-agent'"
	case "gorun", "Horovod":
		remedy = "does anything around it take away its variables, as env -i does, or set PYTHONPATH anew?"
	}
	if m.Sure {
		s.Note("gorun: warning: rank %d on %s is alone: its %s knows of none of the other ranks; %s",
			m.Process, host, m.Library, remedy)
		return
	}
	s.Note("gorun: warning: rank %d on %s ended with %s loaded, and never asked gorun for the others: "+
		"if it called MPI_Init, it was alone; %s", m.Process, host, m.Library, remedy)
}

package launcher

import (
	"gorun/launcher/mpi"
	"gorun/rendezvous/wire"
)

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

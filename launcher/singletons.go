package launcher

import "gorun/rendezvous/wire"

// singleton warns the user about the first rank that an MPI library keeps apart from the others.
func (j *job) singleton(h *host, m *wire.Alone) {
	if !j.owns(h, m.Process) || j.singletons || j.spec.IfAlone == wire.AloneEnds {
		return // with AloneEnds the error says so
	}
	j.singletons = true
	way := "does anything around it take away PMI_FD or PMI_RANK?"
	if m.Library == "Open MPI" {
		way = "start it by: mpirun --mca plm_rsh_agent 'gorun rsh-agent'"
	}
	if m.Sure {
		j.spec.Note("gorun: warning: rank %d on %s is alone: its %s knows of none of the other ranks; %s", m.Process, h.name, m.Library, way)
	} else {
		j.spec.Note("gorun: warning: rank %d on %s has ended with %s loaded and without a word to gorun: if it called MPI_Init, it was alone; %s",
			m.Process, h.name, m.Library, way)
	}
}

package launcher

import (
	"gorun/launcher/talk"
)

// job acts on what the launcher knows. Only loop touches it once Run has started the conversations.
type job struct {
	state
	converse func(*host) // starts the conversation with a host
	events   chan talk.Event
	failover failover

	evicted    []*host // that are yet to be reported as lost
	mpi        mpiPrograms
	stalls     stalls
	lags       lags
	inspection inspection
	whys       []Why // that wait for an inspection
	network    network
}

// tellLost notifies the user of a rank that failed in a job that goes on.
func (j *job) tellLost(process int) {
	failure := j.processes.at(process).failure
	if failure == nil {
		return
	}
	if j.processes.at(process).spare {
		j.spec.Note("gorun: a spare is lost before it was in a world")
	}
	j.spec.Note("gorun: %v", failure)
	for _, line := range j.spec.Output.Tail(process) {
		j.spec.Note("    %s", line)
	}
	failure.Shown = true
}

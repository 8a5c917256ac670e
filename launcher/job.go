package launcher

import (
	"time"

	"gorun/launcher/talk"
	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
)

// job is the launcher's state. Only loop touches it once Run has started the conversations.
type job struct {
	spec       *Spec
	converse   func(*host) // starts the conversation with a host
	membership *membership
	failover   failover
	// template is what the jobs of all daemons have in common.
	template wire.Job
	hosts    hostList
	events   chan talk.Event

	processes  processes
	began      time.Time
	late       time.Time // when the start had taken too long; zero if it has not
	verdict    error
	stopping   bool
	inspection inspection
	mpi        mpiPrograms
	stalls     stalls
	alive      *liveness.Hosts
	evicted    []*host // that are yet to be reported as lost
	asleep     asleep
	network    network
	news       worldNews
	facts      *wire.Topology // the file of facts about hosts, if it was changed since the job began
}

func (j *job) timing() liveness.Timing { return j.spec.Timing() }

// lease returns how long the hosts of a world may be silent.
func (j *job) lease() time.Duration {
	if j.spec.Lease > 0 {
		return j.spec.Lease
	}
	for _, h := range j.hosts {
		if h.ready == nil {
			continue
		}
		for _, g := range h.ready.Host.GPUs {
			if g.Mode == "vgpu" {
				return j.timing().MoveLease
			}
		}
	}
	return j.timing().Lease
}

// addHost adds a host of an elastic job.
func (j *job) addHost(name string) *host {
	h := j.newHost(len(j.hosts), name)
	j.hosts = append(j.hosts, h)
	return h
}

// newHost returns a host with what its daemon is sent.
func (j *job) newHost(id int, name string) *host {
	job := j.template
	job.Slots, job.Toward = max(j.membership.slots[name], 1), j.membership.toward(name, j.hosts)
	return newHost(id, name, j.spec, job)
}

func (j *job) watchHost(e HostEvent) {
	if j.spec.WatchHosts != nil {
		j.spec.WatchHosts(e)
	}
}

// tell prints lines for the user, but not while the job ends.
func (j *job) tell(lines []string) {
	for _, line := range lines {
		if !j.stopping {
			j.spec.Note("%s", line)
		}
	}
}

// tellLost notifies the user of a rank that failed in a job that goes on.
func (j *job) tellLost(process int) {
	failure := j.processes.at(process).failure
	if failure == nil {
		return
	}
	if failure.Signal == 0 {
		j.news.mistake = time.Now()
	}
	j.spec.Note("gorun: %v", failure)
	for _, line := range j.spec.Output.Tail(process) {
		j.spec.Note("    %s", line)
	}
	failure.Shown = true
}

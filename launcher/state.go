package launcher

import (
	"time"

	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
)

// state is what the launcher knows about the job. None of its methods sends anything to a host, or asks the policy.
type state struct {
	spec     *Spec
	template wire.Job // what the jobs of all daemons have in common

	membership *membership
	hosts      hostList
	processes  processes
	alive      *liveness.Hosts
	asleep     asleep

	began    time.Time
	late     time.Time // when the start had taken too long; zero if it has not
	stopping bool
	verdict  error
}

func (s *state) timing() liveness.Timing { return s.spec.Timing() }

// lease returns how long the hosts of a world may be silent.
func (s *state) lease() time.Duration {
	if s.spec.Lease > 0 {
		return s.spec.Lease
	}
	for _, h := range s.hosts {
		if h.ready == nil {
			continue
		}
		for _, g := range h.ready.Host.GPUs {
			if g.Mode == "vgpu" {
				return s.timing().MoveLease
			}
		}
	}
	return s.timing().Lease
}

// addHost adds a host of an elastic job.
func (s *state) addHost(name string) *host {
	h := s.newHost(len(s.hosts), name)
	s.hosts = append(s.hosts, h)
	return h
}

// newHost returns a host with what its daemon is sent.
func (s *state) newHost(id int, name string) *host {
	job := s.template
	job.Slots, job.Toward = max(s.membership.slots[name], 1), s.membership.toward(name, s.hosts)
	return newHost(id, name, s.spec, job)
}

func (s *state) watchHost(e HostEvent) {
	if s.spec.WatchHosts != nil {
		s.spec.WatchHosts(e)
	}
}

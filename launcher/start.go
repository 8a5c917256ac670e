package launcher

import (
	"fmt"
	"time"

	"gorun/launcher/failure"
)

// lateHosts returns the hosts that a start which takes too long waits for; none if one of them has more time.
func (s *state) lateHosts() (failed []int) {
	now := time.Now()
	if s.suspended(now) {
		return nil
	}
	silent := s.silentHosts(now)
	for _, h := range s.hosts {
		if h.failure == nil {
			h.failure = s.lateness(h, silent[h], len(silent) > 0)
		}
		if h.failure != nil {
			failed = append(failed, h.id)
		}
	}
	return failed
}

// lateness returns the step that a host has not done in a start that takes too long, nil if it has done its part.
// silent is how long the host has been silent, others whether some host is.
func (s *state) lateness(h *host, silent time.Duration, others bool) *failure.HostError {
	e := &failure.HostError{Host: h.name, Code: failure.ExitTransport, Hint: "give it more time with --start-timeout"}
	later := s.membership.policy.Later()
	switch {
	case silent > 0:
		return silentError(h, silent)
	case others && h.up:
		return nil // it waits for them
	case !h.up && h.Answered():
		e.Step, e.Err = "start daemon", fmt.Errorf("the host answers, but no daemon runs there after %v", s.spec.StartTimeout)
		e.Hint = "is the host busy, or the path to it slow? Give it more time with --start-timeout"
	case !h.up:
		e.Step, e.Err = "connect", fmt.Errorf("no answer within %v", s.spec.StartTimeout)
		e.Hint = "is the host up, the address right and the port open in the firewall? Or give it more time with --start-timeout"
	case h.ready == nil:
		e.Step, e.Err = "probe", fmt.Errorf("the daemon is not ready after %v", s.spec.StartTimeout)
	case h.world.Epoch == 0 && s.hosts.allReady() && !later:
		e.Step, e.Err = "join", fmt.Errorf("the hosts could not form a world within %v", s.spec.StartTimeout)
		e.Hint = "hosts must reach each other directly: check firewalls between them, " +
			"and by gorun doctor whether large packets are lost on the way"
	case (h.world.Epoch > 0 || later) && s.processes.missing(h.Ranks()):
		e.Step, e.Err = "start ranks", fmt.Errorf("not all of its ranks run after %v", s.spec.StartTimeout)
		e.Hint = "is the program, or the working directory, on a file system that does not answer?"
	default:
		return nil
	}
	return e
}

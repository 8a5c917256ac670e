package launcher

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"gorun/launcher/elastic"
	"gorun/launcher/failure"
	"gorun/launcher/why"
	"gorun/rendezvous/wire"
)

// verdictOf returns how the job ends, in the words of its user.
func (s *state) verdictOf(e elastic.End) error {
	switch e.Cause {
	case elastic.Finished:
		return nil
	case elastic.ProcessFailed:
		if f := s.processes.at(e.Process).failure; f != nil {
			f.Tail = s.spec.Output.Tail(e.Process)
			return f
		}
	case elastic.HostFailed:
		return s.hostsFailed(e)
	case elastic.Divided:
		ended, waiting := s.processes.exited()
		return fmt.Errorf("start a new world: %s called init again, but %s ended", why.Ranks(waiting), why.Ranks(ended))
	}
	return failure.Elastic(e.Cause, e.Why)
}

// hostsFailed reports the hosts that have failed, in the order of the host list. While the job starts, it also names
// hosts that have not answered: they may be slow, or fail next. A silent host may be why others failed.
func (s *state) hostsFailed(e elastic.End) error {
	if e.Hosts == nil {
		e.Hosts = []int{e.Host}
	}
	if e.Starting {
		for h, since := range s.silentHosts(time.Now()) {
			if h.failure == nil {
				h.failure = silentError(h, since)
				e.Hosts = append(e.Hosts, h.id)
			}
		}
	}
	slices.Sort(e.Hosts)
	report := &failure.HostErrors{Hosts: len(s.hosts)}
	for _, id := range e.Hosts {
		h := s.hosts[id]
		if h.failure == nil {
			h.failure = &failure.HostError{Host: h.name, Step: "run", Err: errors.New(e.Why), Code: failure.ExitTransport}
		}
		report.Failed = append(report.Failed, h.failure)
	}
	for _, h := range s.hosts {
		switch {
		case !e.Starting || h.up || h.ended || h.failure != nil:
		case h.Answered():
			report.Late = append(report.Late, h.name)
		default:
			report.Silent = append(report.Silent, h.name)
		}
	}
	if len(report.Failed)+len(report.Silent)+len(report.Late) == 1 {
		return report.Failed[0]
	}
	return report
}

// stop ends the job with a verdict; the first verdict stands.
func (j *job) stop(verdict error) {
	if j.stopping {
		return
	}
	j.stopping, j.verdict = true, verdict
	stop := &wire.Stop{Interrupt: errors.Is(verdict, failure.ErrInterrupted)}
	if recordable(verdict) && j.spec.Record != nil {
		stop.Record = j.hosts.share()
	}
	j.hosts.broadcast(stop)
	if verdict != nil {
		// Hosts that are not up have nothing to stop: do not wait for them.
		for _, h := range j.hosts {
			if !h.up {
				h.ended = true
			}
		}
	}
}

// cutOff stops a job from outside. Of a start that was about to fail, it reports the hosts that have failed.
func (j *job) cutOff(cause error) {
	for _, id := range j.membership.policy.Failed() {
		if e := j.hosts[id].failure; e != nil && !j.stopping {
			j.spec.Note("gorun: %v", e)
		}
	}
	j.stop(cause)
}

package launcher

import (
	"fmt"
	"slices"

	"gorun/launcher/elastic"
	"gorun/launcher/jobs"
	"gorun/topology"
)

// Drain is the order to use a host no more, or with Undo to use it again. With Look it is no order, and only asks how far
// the host has come.
type Drain struct {
	Host   string
	Undo   bool
	Look   bool
	move   bool                  // its machine is to be moved, or has been
	Answer chan<- jobs.Departure // has room for one
}

// drain carries out the order of a user, and answers it.
func (j *job) drain(d Drain) {
	name, err := j.membership.named(d.Host)
	if err != nil {
		d.Answer <- jobs.Departure{Err: err}
		return
	}
	was := j.membership.policy.Departure(name)
	if !d.Look && !j.stopping {
		j.decide(elastic.Drain{Host: name, Undo: d.Undo, Move: d.move})
	}
	at := j.membership.policy.Departure(name)
	switch {
	case at.Drained == was.Drained:
	case !at.Drained:
		j.spec.Note("gorun: %s is used again", name)
	case len(at.Left) == 0:
		j.spec.Note("gorun: %s is drained, and no rank runs there", name)
	default:
		j.spec.Note("gorun: %s is drained, with %s: %s", name, topology.Count(len(at.Left), "rank"), waitsFor(at))
	}
	held := slices.ContainsFunc(j.membership.held, func(ev elastic.Event) bool {
		d, is := ev.(elastic.Drain)
		return is && d.Host == name && !d.Undo
	})
	d.Answer <- jobs.Departure{Left: at.Left, Waits: waitsFor(at), Used: !at.Drained && !held}
}

// waitsFor describes what keeps ranks on a host that is drained.
func waitsFor(d elastic.Departure) string {
	switch {
	case len(d.Left) == 0:
		return ""
	case d.Loading:
		return "those that take their place load their program"
	case d.Kept > 0:
		return fmt.Sprintf("no other slot is free for %d of them, and the job needs them (--min-np)", d.Kept)
	}
	return "they leave at their next commit"
}

// named returns a host of an elastic job by the name that discovery, or its user, gives it.
func (m *membership) named(host string) (string, error) {
	if m.config.OnFailure == elastic.EndJob {
		return "", fmt.Errorf("drain %s: a job of fixed size needs all its hosts; one with --min-np or --spares is elastic", host)
	}
	for _, name := range m.names {
		if name == host || bare(name) == host {
			return name, nil
		}
	}
	return "", fmt.Errorf("drain %s: the job has no such host", host)
}

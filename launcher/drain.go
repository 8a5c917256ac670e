package launcher

import (
	"fmt"
	"slices"

	"gorun/launcher/elastic"
)

// Drain is the order to use a host no more, or with Undo to use it again. It may be repeated, to see how far it has come.
type Drain struct {
	Host   string
	Undo   bool
	Answer chan<- Drained // has room for one
}

// Drained is how far a host has come that is drained.
type Drained struct {
	Left  []int  // ranks that run there
	Waits string // for what they wait
	Err   error  // why it cannot be drained
}

// drain carries out the order of a user, and answers it.
func (j *job) drain(d Drain) {
	name, err := j.membership.named(d.Host)
	if err == nil && !j.stopping {
		if j.membership.orders(name, !d.Undo) {
			j.spec.Note("gorun: %s is %s", name, map[bool]string{false: "drained: its ranks leave at a commit", true: "used again"}[d.Undo])
		}
		j.decide(elastic.Drain{Host: name, Undo: d.Undo})
	}
	if err != nil {
		d.Answer <- Drained{Err: err}
		return
	}
	at, _ := j.membership.policy.Departure(name)
	d.Answer <- Drained{Left: at.Left, Waits: waitsFor(at)}
}

// waitsFor describes what keeps ranks on a host that is drained.
func waitsFor(d elastic.Departure) string {
	switch {
	case len(d.Left) == 0:
		return ""
	case d.Kept > 0:
		return fmt.Sprintf("no other slot is free for %d of them, and the job needs them (--min-np)", d.Kept)
	case d.Loading:
		return "those that take their place load their program"
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

// orders notes that a host is to be drained or not, and reports whether that is new.
func (m *membership) orders(host string, drained bool) bool {
	i := slices.Index(m.drained, host)
	switch {
	case drained && i < 0:
		m.drained = append(m.drained, host)
	case !drained && i >= 0:
		m.drained = slices.Delete(m.drained, i, i+1)
	default:
		return false
	}
	return true
}

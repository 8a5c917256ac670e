package launchers

import (
	"maps"
	"slices"
	"time"

	"gorun/launcher/jobs"
	"gorun/launcher/why"
)

const (
	// maxEvents is how many events are kept.
	maxEvents = 200
	// together is how long after the first of several ranks the others count as doing the same.
	together = time.Second
)

// happening is an event, or what some ranks did at about one time.
type happening struct {
	jobs.Event
	ranks []int
}

// happens is event for a caller without the lock.
func (r *Registration) happens(kind, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.event(time.Now(), kind, text)
}

// event notes what happened, to ranks if some are named. It is called with mu held.
func (r *Registration) event(at time.Time, kind, text string, ranks ...int) {
	for i := len(r.events) - 1; len(ranks) > 0 && i >= 0 && at.Sub(r.events[i].At) < together; i-- {
		if e := &r.events[i]; e.Kind == kind && e.Text == text {
			e.ranks = append(e.ranks, ranks...)
			return
		}
	}
	r.events = append(r.events, happening{jobs.Event{At: at, Kind: kind, Text: text}, ranks})
	r.events = r.events[max(len(r.events)-maxEvents, 0):]
	if r.counted == nil {
		r.counted = map[string]int{}
	}
	r.counted[kind]++
}

// moves notes that a host is about to be moved, or has been.
func (r *Registration) moves(host string, begins bool, text string) {
	if begins {
		r.happens("move", host+" is about to be moved: "+text)
	} else {
		r.happens("moved", host+" was moved: "+text)
	}
}

// State returns what is known of the job, and asks the daemons for newer figures, which the next call returns.
func (r *Registration) State() jobs.State {
	select {
	case r.askUsage <- struct{}{}:
	default:
	}
	s := jobs.State{Record: r.Record(), Hosts: []jobs.HostStatus{}, Events: []jobs.Event{}}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.Ranks, s.Counted = r.ranksNow(), maps.Clone(r.counted)
	for _, name := range s.Record.Hosts {
		h := r.carried[name]
		h.Name = name
		s.Hosts = append(s.Hosts, h)
	}
	for _, e := range r.events {
		if len(e.ranks) > 0 {
			e.Text = why.Ranks(slices.Clone(e.ranks)) + " " + e.Text
		}
		s.Events = append(s.Events, e.Event)
	}
	return s
}

package migrate

import "time"

const (
	// Period is how often a host feels its own pulse.
	Period = time.Second
	// late is how much later than that a beat may come until something was amiss.
	late = 2 * time.Second
)

// Pulse notices that a host stood still: whether it was stopped, suspended or starved, its beats come late.
type Pulse struct{ last time.Duration }

// Beat takes the time since the machine was started, its sleep included, once in a Period. It returns for how long
// the host stood still, 0 if it did not.
func (p *Pulse) Beat(now time.Duration) time.Duration {
	gap := now - p.last - Period
	first := p.last == 0
	p.last = now
	if first || gap < late {
		return 0
	}
	return gap
}

package migrate

import "time"

const (
	// Period is the interval between beats.
	Period = time.Second
	// late is the greatest delay of a beat without a pause.
	late = 2 * time.Second
)

// Pulse notices that a host was paused: whether it was stopped, suspended or starved, its beats come late.
type Pulse struct{ last time.Duration }

// Beat takes the time since boot, including sleep, once in a Period. It returns how long the host was paused, 0 if it
// was not.
func (p *Pulse) Beat(now time.Duration) time.Duration {
	gap := now - p.last - Period
	first := p.last == 0
	p.last = now
	if first || gap < late {
		return 0
	}
	return gap
}

package migrate

import "time"

// Pulse notices that a host was paused: whether it was stopped, suspended or starved, its beats come late.
type Pulse struct {
	Period time.Duration // between beats
	Late   time.Duration // a beat comes so late only after a pause
	last   time.Duration
}

// Beat takes the time since boot, including sleep, once in a Period. It returns how long the host was paused, 0 if it
// was not.
func (p *Pulse) Beat(now time.Duration) time.Duration {
	gap := now - p.last - p.Period
	first := p.last == 0
	p.last = now
	if first || gap < p.Late {
		return 0
	}
	return gap
}

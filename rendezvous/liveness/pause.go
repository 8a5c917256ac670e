package liveness

import "time"

// Pauses notices that this process was paused, during which it could neither hear nor speak. It is shown moments at
// which the process runs; two of them that lie further apart than Limit enclose a pause.
type Pauses struct {
	Limit time.Duration
	last  time.Time // the last moment
	long  Pause     // the last pause
}

// Pause is a time in which this process did not run.
type Pause struct{ From, To time.Time }

// Lasted returns the length of the pause, by wall clock if that is more: the monotonic clock stops while a machine is
// suspended.
func (p Pause) Lasted() time.Duration {
	return max(p.To.Sub(p.From), p.To.Round(0).Sub(p.From.Round(0)))
}

// Look takes a moment, and returns the time since the one before, and whether that was a pause. At first both are zero.
func (p *Pauses) Look(now time.Time) (gap time.Duration, paused bool) {
	if p.last.IsZero() {
		p.last = now
		return 0, false
	}
	present := Pause{p.last, now}
	p.last = now
	if gap = present.Lasted(); gap > p.Limit {
		p.long, paused = present, true
	}
	return gap, paused
}

// Latest returns the pause that lasts now, or else the last one.
func (p *Pauses) Latest(now time.Time) Pause {
	if present := (Pause{p.last, now}); !p.last.IsZero() && present.Lasted() > p.Limit {
		return present
	}
	return p.long
}

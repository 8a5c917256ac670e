package liveness

import "time"

// Gaps notices that this process was paused, during which it could neither hear nor speak. It is shown moments at
// which the process runs; two of them that lie further apart than Limit enclose a pause.
type Gaps struct {
	Limit time.Duration
	last  time.Time // the last moment
	long  Gap       // the last pause
}

// Gap is a time in which this process did not run.
type Gap struct{ From, To time.Time }

// Lasted returns the length of the pause, by wall clock if that is more: the monotonic clock stops while a machine is
// suspended.
func (g Gap) Lasted() time.Duration {
	return max(g.To.Sub(g.From), g.To.Round(0).Sub(g.From.Round(0)))
}

// Look takes a moment, and returns the time since the one before, and whether that was a pause. At first both are zero.
func (g *Gaps) Look(now time.Time) (gap time.Duration, paused bool) {
	if g.last.IsZero() {
		g.last = now
		return 0, false
	}
	present := Gap{g.last, now}
	g.last = now
	if gap = present.Lasted(); gap > g.Limit {
		g.long, paused = present, true
	}
	return gap, paused
}

// Latest returns the pause that lasts now, or else the last one.
func (g *Gaps) Latest(now time.Time) Gap {
	if present := (Gap{g.last, now}); !g.last.IsZero() && present.Lasted() > g.Limit {
		return present
	}
	return g.long
}

package proc

import "time"

// Limits of how often the process table is read.
const (
	firstScan = 2 * time.Millisecond  // after the first look at what has to disappear
	slowScan  = 50 * time.Millisecond // when it takes its time
	lazyScan  = 20 * time.Millisecond // when a zombie may have to be reaped
)

// scanClock decides when to read the process table. While nothing happens it is never read; while something has to
// disappear the interval grows from firstScan to slowScan. Reading takes at most half of one CPU, and a tenth if it is
// only for zombies.
type scanClock struct {
	at      time.Time // zero for never
	backoff time.Duration
	last    time.Time
	cost    time.Duration
}

func (c *scanClock) now(now time.Time) {
	c.backoff = 0
	c.by(now)
}

func (c *scanClock) lazy(now time.Time) {
	if t := c.last.Add(9 * c.cost); t.After(now.Add(lazyScan)) {
		c.by(t)
		return
	}
	c.by(now.Add(lazyScan))
}

func (c *scanClock) by(t time.Time) {
	if floor := c.last.Add(c.cost); t.Before(floor) {
		t = floor
	}
	if c.at.IsZero() || t.Before(c.at) {
		c.at = t
	}
}

func (c *scanClock) due(now time.Time) bool { return !c.at.IsZero() && !now.Before(c.at) }

// scanned records a reading and plans the next if one is needed.
func (c *scanClock) scanned(start, end time.Time, again bool) {
	c.at, c.last, c.cost = time.Time{}, end, end.Sub(start)
	if !again {
		c.backoff = 0
		return
	}
	c.backoff = min(max(2*c.backoff, firstScan), slowScan)
	c.by(end.Add(c.backoff))
}

// wait returns how long to sleep.
func (c *scanClock) wait(now time.Time) time.Duration {
	if c.at.IsZero() {
		return time.Hour
	}
	return max(c.at.Sub(now), 0)
}

package member

import "time"

const (
	// tickPeriod is the interval after which what has no answer is repeated, at first.
	tickPeriod    = 200 * time.Millisecond
	maxTickPeriod = 5 * tickPeriod
)

// cadence is the interval at which the epoch machine repeats what has no answer. It grows: where many hosts are slow,
// asking them again makes them slower.
type cadence struct {
	*time.Ticker
	pace time.Duration
}

// newCadence returns a cadence that does not tick before it is set.
func newCadence() *cadence { return &cadence{Ticker: time.NewTicker(time.Hour), pace: time.Hour} }

func (c *cadence) set(pace time.Duration) {
	if pace != c.pace {
		c.pace = pace
		c.Reset(pace)
	}
}

func (c *cadence) later() { c.set(min(2*c.pace, maxTickPeriod)) }

func (c *cadence) stop() { c.Ticker.Stop() }

package worker

import (
	"context"
	"time"

	"gorun/rendezvous/epoch"
)

const (
	// tickPeriod is after how long what has no answer is said again, at first.
	tickPeriod    = 200 * time.Millisecond
	maxTickPeriod = 5 * tickPeriod
)

// cadence is how often the epoch machine says again what it has no answer to: ever more rarely, for where many hosts are slow, to
// ask them again makes them slower.
type cadence struct {
	*time.Ticker
	pace time.Duration
}

// newCadence returns one that does not tick before it is set.
func newCadence() *cadence { return &cadence{Ticker: time.NewTicker(time.Hour), pace: time.Hour} }

func (c *cadence) set(pace time.Duration) {
	if pace != c.pace {
		c.pace = pace
		c.Reset(pace)
	}
}

func (c *cadence) later() { c.set(min(2*c.pace, maxTickPeriod)) }

func (c *cadence) stop() { c.Ticker.Stop() }

// askAgain says at once what has no answer: a host that could not give any is there again.
func (d *daemon) askAgain(ctx context.Context) {
	if d.member.connected && d.member.machine.State() != epoch.Committed {
		d.step(ctx, epoch.Event{Tick: true})
		d.member.repeat.set(tickPeriod)
	}
}

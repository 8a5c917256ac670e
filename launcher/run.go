package launcher

import (
	"context"
	"syscall"
	"time"

	"gorun/launcher/elastic"
	"gorun/launcher/failure"
	"gorun/rendezvous/wire"
)

const (
	// stopGrace is how much longer than their ranks' grace daemons may take to stop; hurryGrace is all that a second
	// Ctrl-C leaves them.
	stopGrace  = 10 * time.Second
	hurryGrace = time.Second
)

// loop handles one event at a time until every conversation has ended.
func (j *job) loop(ctx context.Context) error {
	defer j.membership.tick.Stop()
	listen := time.NewTicker(j.timing().LookInterval)
	defer listen.Stop()
	lags := time.NewTicker(lagEvery)
	defer lags.Stop()
	done, hurry, signals := ctx.Done(), j.spec.Hurry, j.spec.Signals
	timeout := after(j.spec.Timeout)
	var last, waits <-chan time.Time // after a stop: the end of the wait for daemons, and when users hear which
	for !j.stopping || !j.hosts.allEnded() {
		j.report()
		select {
		case ev := <-j.events:
			j.handle(ev)
		case list := <-j.membership.lists:
			j.discovered(list)
		case number := <-j.failover.kept():
			j.failover.safe(number)
		case now := <-listen.C:
			j.checkElectors(now)
			j.listen(now)
		case <-j.membership.tick.C:
			j.decide(elastic.Tick{})
		case <-done:
			done = nil
			j.cutOff(context.Cause(ctx))
		case <-hurry:
			hurry = nil
			j.stop(failure.ErrStopped)
			j.hosts.broadcast(&wire.Stop{Now: true})
			last = time.After(hurryGrace)
		case m := <-j.spec.Moves:
			j.moved(m)
		case <-lags.C:
			j.lookForLags()
		case d := <-j.spec.Drains:
			j.drain(d)
		case <-j.spec.AskUsage:
			j.hosts.broadcast(&wire.AskUsage{})
		case n := <-signals:
			j.asleep.signalled(n, time.Now())
			j.hosts.broadcast(&wire.Signal{Number: n})
			if n == int(syscall.SIGUSR2) {
				j.record("SIGUSR2", true)
			}
		case <-j.stalls.timeout:
			j.judgeStalls()
		case <-timeout:
			j.inspect(wire.Inspect{}, j.timedOut)
		case w := <-j.spec.Whys:
			j.whys = append(j.whys, w)
			j.lookForWhys()
		case <-j.inspection.over:
			j.inspectionOver()
		case now := <-waits:
			j.tellStragglers(now)
		case <-last:
			return j.verdict // closing the connections ends what is left
		}
		if j.stopping && j.verdict != nil {
			j.spec.Output.Hurry() // or daemons whose ranks wait for a terminal would not be heard
		}
		if j.stopping && last == nil {
			last, waits = time.After(j.spec.Grace+stopGrace), time.After(j.spec.Grace+j.timing().EndNoticeAfter)
		}
	}
	return j.verdict
}

// after returns what delivers the time after d, and nothing for 0.
func after(d time.Duration) <-chan time.Time {
	if d == 0 {
		return nil
	}
	return time.After(d)
}

// report shows how far the start has come.
func (s *state) report() {
	if s.spec.Progress == nil {
		return
	}
	p := Progress{Hosts: len(s.hosts), Started: s.processes.started(), Ranks: len(s.processes), Waits: s.awaited(time.Now())}
	for _, h := range s.hosts {
		if h.up {
			p.Reached++
		}
		if h.ready != nil {
			p.Ready++
		}
	}
	s.spec.Progress(p)
}

package launcher

import (
	"context"
	"sync"
	"time"

	"gorun/launcher/elastic"
	"gorun/launcher/failure"
	"gorun/rendezvous/wire"
)

const (
	// manyHosts is how many hosts get the binary from each other: it reaches fewer as fast from the launcher.
	manyHosts = 8
	// stopGrace is how much longer than their ranks' grace daemons may take to stop; hurryGrace is all that a second
	// Ctrl-C leaves them.
	stopGrace  = 10 * time.Second
	hurryGrace = time.Second
)

// Run runs the job and returns nil when every rank exited with 0. Otherwise the error explains the end:
// *RankError, *HostError, HostErrors, or the cause of ctx. When it returns, every daemon has ended or
// its connection is closed, which ends it.
func Run(ctx context.Context, spec Spec) error {
	j, err := newJob(&spec)
	if err != nil {
		return err
	}
	talk, hangUp := context.WithCancel(context.Background()) // the end of ctx stops the job in order
	defer hangUp()
	var talks sync.WaitGroup
	j.converse = j.conversations(talk, &talks)
	for _, h := range j.hosts { // of another launcher
		if !h.ended {
			j.converse(h)
		}
	}
	j.began = time.Now()
	if j.membership.first != nil {
		j.discovered(j.membership.first)
	}
	err = j.loop(ctx)
	j.tellLeft(time.Now())
	hangUp()
	if !j.hosts.allEnded() {
		spec.Output.Abandon() // a terminal that takes nothing may be what keeps them
	}
	talks.Wait()
	j.tellEdges()
	if text := j.network.carried.text(); spec.Verbose && text != "" {
		spec.Note("gorun: %s", text)
	}
	return err
}

// conversations returns what starts the conversation with a host. It ends with ctx, and talks waits for it. A host that
// is used again is cleaned up first: the conversation before is over by then.
func (j *job) conversations(ctx context.Context, talks *sync.WaitGroup) func(*host) {
	type conversation struct {
		host *host
		over chan struct{}
	}
	last := map[string]conversation{} // by the name of the host
	return func(h *host) {
		former, present := last[h.name], conversation{h, make(chan struct{})}
		last[h.name] = present
		again := former.host != nil && former.host.ended
		if j.spec.Relay != nil && max(len(j.hosts), len(j.membership.slots)) >= manyHosts {
			j.spec.Relay.Begin()
		}
		line, hangUp := context.WithCancel(ctx)
		h.hangUp = hangUp
		talks.Go(func() {
			defer close(present.over)
			defer hangUp()
			if again {
				select {
				case <-former.over:
				case <-line.Done():
				}
			}
			h.Talk(ctx, line, j.events)
		})
	}
}

// loop handles one event at a time until every conversation has ended.
func (j *job) loop(ctx context.Context) error {
	defer j.membership.tick.Stop()
	listen := time.NewTicker(j.timing().LookInterval)
	defer listen.Stop()
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
		case now := <-j.membership.tick.C:
			j.tell(j.news.lasting(now))
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
		case text := <-j.spec.Facts:
			j.template.Topology, j.facts = text, &wire.Topology{Text: text}
			j.hosts.broadcast(j.facts)
		case <-j.spec.AskUsage:
			j.hosts.broadcast(&wire.AskUsage{})
		case n := <-signals:
			j.asleep.signalled(n, time.Now())
			j.hosts.broadcast(&wire.Signal{Number: n})
		case <-j.stalls.timeout:
			j.judgeStalls()
		case <-timeout:
			j.inspect()
		case <-j.inspection.over:
			j.timedOut()
		case now := <-waits:
			j.tellStragglers(now)
		case <-last:
			return j.verdict // closing the connections ends what is left
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
func (j *job) report() {
	if j.spec.Progress == nil {
		return
	}
	p := Progress{Hosts: len(j.hosts), Started: j.processes.started(), Ranks: len(j.processes), Waits: j.awaited(time.Now())}
	for _, h := range j.hosts {
		if h.up {
			p.Reached++
		}
		if h.ready != nil {
			p.Ready++
		}
	}
	j.spec.Progress(p)
}

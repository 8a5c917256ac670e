package launcher

import (
	"fmt"
	"sync/atomic"
	"time"

	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
)

// A host that is silent may be a virtual machine that stands still while it moves: that is told, but it is no reason to
// give it up. Whether it is lost is decided by what the daemons say of each other, see accuse.go.

// listenEvery is how often one looks.
const listenEvery = 250 * time.Millisecond

// heard is when the goroutine that reads from a daemon last got something from it.
type heard struct {
	at   atomic.Pointer[time.Time]
	busy atomic.Bool // it does not read: a terminal that takes nothing is not the host's silence
}

// reading says that one waits for the host, with what time it is.
func (h *heard) reading(now time.Time) {
	h.at.Store(&now)
	h.busy.Store(false)
}

func (h *heard) has(now time.Time) {
	h.at.Store(&now)
	h.busy.Store(true)
}

// last is when the host was last heard, as far as it is its own affair; zero if it was not yet.
func (h *heard) last(now time.Time) time.Time {
	at := h.at.Load()
	switch {
	case at == nil:
		return time.Time{}
	case h.busy.Load():
		return now
	}
	return *at
}

// silences are of hosts, by id.
type silences struct {
	timing liveness.Timing
	looked time.Time
	floor  time.Time         // the launcher itself stood still until then
	since  map[int]time.Time // of those that were told: when they were last heard
}

// look takes when a host was last heard, and returns what is to be told about it, if that is anything.
func (s *silences) look(now time.Time, host int, last time.Time) (text string, e HostEvent) {
	if last.IsZero() {
		return "", e
	}
	since, told := s.since[host]
	switch {
	case told && last.After(since):
		delete(s.since, host)
		return fmt.Sprintf("is back after %.0f s", last.Sub(since).Seconds()), HostEvent{State: HostBack, Since: since}
	case told:
		return "", e
	}
	if s.quiet(now, last) < s.timing.NoticeAfter {
		return "", e
	}
	s.since[host] = last
	return fmt.Sprintf("has been silent for %.0f s", now.Sub(last).Seconds()), HostEvent{State: HostSilent, Since: last}
}

// quiet is how long a host has been silent, as far as this machine could hear it.
func (s *silences) quiet(now, last time.Time) time.Duration {
	if s.floor.After(last) {
		last = s.floor
	}
	return now.Sub(last)
}

// tick notices whether the launcher itself stood still.
func (s *silences) tick(now time.Time) {
	if !s.looked.IsZero() && now.Sub(s.looked) > 4*listenEvery {
		s.floor = now
	}
	s.looked = now
}

// listen tells which hosts are silent, and which are back.
func (j *job) listen(now time.Time) {
	j.silences.tick(now)
	j.listenAlone(now)
	j.listenKept(now)
	j.judge(now)
	j.search(now)
	if j.stopping {
		return
	}
	for _, h := range j.hosts {
		j.absent(now, h) // takes note
		if j.ready[h.id] == nil || j.ended[h.id] || h.leaving {
			continue
		}
		text, event := j.silences.look(now, h.id, h.heard.last(now))
		if text == "" {
			continue
		}
		if event.State == HostBack && h.moves.After(now) {
			h.back = now
		}
		event.Host = h.name
		j.watchHost(event)
		if event.State == HostSilent && !j.alone.since.IsZero() {
			continue // one line is enough
		}
		if h.moves.After(now) {
			text += ", while it moves"
		}
		j.spec.Note("gorun: %s %s", h.name, text)
	}
	j.listenApart(now)
}

func (j *job) watchHost(e HostEvent) {
	if j.spec.WatchHosts != nil {
		j.spec.WatchHosts(e)
	}
}

// migrating takes a host's word about its own move.
func (j *job) migrating(h *host, m *wire.Migrating) {
	now := time.Now()
	switch {
	case m.State == wire.MoveStarts:
		h.moves = now.Add(j.timing().MoveLimit)
	case h.moves.After(now):
		h.moves, h.back = time.Time{}, now
	}
	if !j.stopping {
		j.bequeath(nil) // another launcher must not give it up sooner
	}
	if !j.spec.Verbose {
		return
	}
	if m.State == wire.MoveStarts {
		j.spec.Note("gorun: %s is about to be moved: %s", h.name, m.Text)
		return
	}
	j.spec.Note("gorun: %s renews its connections: %s", h.name, m.Text)
}

// Timing returns the limits that decide whether a host is there.
func (s *Spec) Timing() liveness.Timing { return liveness.Default().Scaled(s.TimeScale) }

func (j *job) timing() liveness.Timing { return j.spec.Timing() }

// patience is how long a host may be silent: longer while it moves, however long before that was announced.
func (j *job) patience(now time.Time, h *host) time.Duration {
	if j.spec.Lease == 0 && h.moves.After(now) {
		return max(j.lease(), j.timing().MoveLease)
	}
	return j.lease()
}

// lease returns how long the hosts of a world may be silent.
func (j *job) lease() time.Duration {
	if j.spec.Lease > 0 {
		return j.spec.Lease
	}
	for _, ready := range j.ready {
		for _, g := range ready.Host.GPUs {
			if g.Mode == "vgpu" {
				return j.timing().MoveLease
			}
		}
	}
	return j.timing().Lease
}

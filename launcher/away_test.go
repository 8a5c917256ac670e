package launcher

import (
	"testing"
	"time"

	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
)

// TestSearch: a host that cannot be reached is lost when its lease ends, and soon only if it has hung up itself, has nothing
// to lose, or others say that it is gone.
func TestSearch(t *testing.T) {
	const lease = 30
	began := time.Unix(1000, 0)
	at := func(sec float64) time.Time { return began.Add(time.Duration(sec * float64(time.Second))) }
	for name, tc := range map[string]struct {
		away       away
		now, heard float64 // in seconds
		change     func(j *job)
		lost       bool
	}{
		"it is there":                      {now: 100, heard: 99.5},
		"it is silent, which others judge": {now: 100, heard: 1, change: func(j *job) { j.hosts[1].heard.reading(at(98)) }},
		"it is silent, and others have not met it": {now: 1 + lease, heard: 1,
			change: func(j *job) { j.hosts[1].heard.reading(at(30)); j.worlds = nil }, lost: true},
		"it was silent as its first world began, as others told": {now: 1 + lease, heard: 1,
			change: func(j *job) {
				j.hosts[1].heard.reading(at(30))
				j.worlds = map[int]wire.World{1: {Epoch: 1, Order: []int{0, 1}}}
			}},
		"others have met it in a world before": {now: 1 + lease, heard: 1,
			change: func(j *job) { j.hosts[1].heard.reading(at(30)); j.epoch = 2 }},
		"others were in another world since": {now: 1 + lease, heard: 1,
			change: func(j *job) { j.hosts[1].heard.reading(at(30)); j.worlds[1] = wire.World{Epoch: 2, Order: []int{1}} }, lost: true},
		"it is silent as all others are": {now: 1 + lease, heard: 1, change: func(j *job) { j.hosts[1].heard.reading(at(20)); j.alone.since = at(20) }},
		"it cannot be reached, as all others": {away: away{since: at(10), silent: at(10)}, now: 9 + lease, heard: 9,
			change: func(j *job) { j.alone.since = at(9) }},
		"it hung up, and no other is heard": {away: away{since: at(10), silent: at(10), hungUp: true}, now: 15, heard: 10,
			change: func(j *job) { j.alone.since = at(10) }, lost: true},
		"it is silent alone":               {now: 1 + lease, heard: 1, change: func(j *job) { j.hosts = j.hosts[:1] }, lost: true},
		"and was for a little less":        {now: lease, heard: 1, change: func(j *job) { j.hosts = j.hosts[:1] }},
		"it is silent and others are gone": {now: 1 + lease, heard: 1, change: func(j *job) { j.hosts[1].heard.reading(at(30)); j.ended[1] = true }, lost: true},
		"it is silent and others are not in its world": {now: 1 + lease, heard: 1,
			change: func(j *job) { j.hosts[1].heard.reading(at(30)); j.members = []int{0} }, lost: true},
		"it is silent, and a spare host": {now: 1 + lease, heard: 1,
			change: func(j *job) { j.hosts[1].heard.reading(at(30)); j.members = []int{1} }, lost: true},
		"it is silent alone, and moves":            {now: 100, heard: 1, change: func(j *job) { j.hosts = j.hosts[:1]; j.hosts[0].moves = at(1000) }},
		"it is silent alone, and starts":           {now: 100, heard: 1, change: func(j *job) { j.hosts = j.hosts[:1]; delete(j.ready, 0) }},
		"it is silent since both stood still":      {now: 100, heard: 1, change: func(j *job) { j.hosts = j.hosts[:1]; j.silences.floor = at(90) }},
		"it is cut off":                            {away: away{since: at(10), silent: at(10)}, now: 30, heard: 9},
		"its lease ends":                           {away: away{since: at(10), silent: at(10)}, now: 9 + lease, heard: 9, lost: true},
		"its lease ends as its connection breaks":  {away: away{since: at(60), silent: at(60)}, now: 61, heard: 1},
		"and a moment later":                       {away: away{since: at(60), silent: at(60)}, now: 61.5, heard: 1, lost: true},
		"it hung up":                               {away: away{since: at(10), silent: at(10), hungUp: true}, now: 11.5, heard: 10, lost: true},
		"it hung up a moment ago":                  {away: away{since: at(10), silent: at(10), hungUp: true}, now: 11, heard: 10},
		"it hung up, but may answer":               {away: away{since: at(10), silent: at(10), hungUp: true, blind: true}, now: 14, heard: 10},
		"it hung up, and does not answer for long": {away: away{since: at(10), silent: at(10), hungUp: true, blind: true}, now: 15, heard: 10, lost: true},
		"it hung up, and answers":                  {away: away{since: at(10), hungUp: true}, now: 20, heard: 10},
		"it hung up, and answered":                 {away: away{since: at(10), silent: at(19), hungUp: true}, now: 20, heard: 10},
		"it answers for too long":                  {away: away{since: at(10)}, now: 10 + lease, heard: 10, lost: true},
		"it hung up on another": {away: away{since: at(10), silent: at(10)}, now: 12, heard: 10,
			change: func(j *job) { j.hosts[1].parted[0] = true }, lost: true},
		"it hung up on one that is lost": {away: away{since: at(10), silent: at(10)}, now: 12, heard: 10,
			change: func(j *job) { j.hosts[1].parted[0], j.ended[1] = true, true }},
		"it is not ready":   {away: away{since: at(10), silent: at(10)}, now: 12, heard: 10, change: func(j *job) { delete(j.ready, 0) }, lost: true},
		"the job ends":      {away: away{since: at(10), silent: at(10)}, now: 12, heard: 10, change: func(j *job) { j.stopping = true }, lost: true},
		"it is not wanted":  {away: away{since: at(10), silent: at(10)}, now: 12, heard: 10, change: func(j *job) { j.hosts[0].leaving = true }, lost: true},
		"it moves":          {away: away{since: at(10), silent: at(10)}, now: 60, heard: 9, change: func(j *job) { j.hosts[0].moves = at(1000) }},
		"it moves for long": {away: away{since: at(10), silent: at(10)}, now: 130, heard: 9, change: func(j *job) { j.hosts[0].moves = at(1000) }, lost: true},
		"it moved, and said no end for very long": {away: away{since: at(10), silent: at(10)}, now: 60, heard: 9, change: func(j *job) { j.hosts[0].moves = at(60) }, lost: true},
		"this machine stood still": {away: away{since: at(10), silent: at(10), hungUp: true}, now: 100, heard: 9,
			change: func(j *job) { j.silences.floor = at(99.9) }},
	} {
		t.Run(name, func(t *testing.T) {
			j := &job{spec: &Spec{}, change: changeOf(2, flexible), up: map[int]bool{0: true, 1: true}, ended: map[int]bool{}, ready: map[int]*wire.Ready{0: {}, 1: {}}, silences: silences{timing: liveness.Default(), since: map[int]time.Time{}},
				worlds: map[int]wire.World{0: {Epoch: 1}, 1: {Epoch: 1, Order: []int{0, 1}}}}
			hangups := 0
			for id := range 2 {
				j.hosts = append(j.hosts, &host{id: id, parted: map[int]bool{}, hangUp: func() { hangups++ }})
			}
			h := j.hosts[0]
			h.daemon.Store(&Daemon{Away: func() away { return tc.away }})
			h.heard.reading(at(tc.heard))
			j.hosts[1].heard.reading(at(tc.now))
			if tc.change != nil {
				tc.change(j)
			}
			j.search(at(tc.now))
			if lost := h.unreachable.Load() != nil; lost != tc.lost || hangups > 1 || lost != (hangups == 1) {
				t.Errorf("lost %v after %d hang-ups, want %v", lost, hangups, tc.lost)
			}
		})
	}
}

// TestAwayBeforeWorld: that a connection has ended is a reason to form a world which would be formed later: in one, hosts tell
// each other whether the launcher lives.
func TestAwayBeforeWorld(t *testing.T) {
	now := time.Unix(1000, 0)
	j := &job{spec: &Spec{StartTimeout: time.Hour}, epoch: 1, change: laterChange(2),
		up: map[int]bool{0: true, 1: true}, ended: map[int]bool{}, ready: map[int]*wire.Ready{0: {}, 1: {}}}
	var state away
	for id := range 2 {
		h := newHost(id, "", j.spec, wire.Job{})
		h.daemon.Store(&Daemon{Away: func() away { return state }})
		h.heard.reading(now)
		j.hosts = append(j.hosts, h)
	}
	forms := func() (n int) {
		for _, h := range j.hosts {
			msgs, _ := h.queue.take()
			for _, m := range msgs {
				if form, ok := m.(*wire.Form); ok && form.Epoch == 1 {
					n++
				}
			}
		}
		return n
	}
	if j.search(now); forms() != 0 {
		t.Error("a world is formed although all connections are there")
	}
	state.since = now
	if j.search(now); forms() != 2 {
		t.Error("no world is formed")
	}
	if j.search(now); forms() != 0 {
		t.Error("a world is formed twice")
	}
}

package launcher

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

// TestAccused: a host of which another one hears nothing, and the launcher neither, is lost, also if it has yet to be taken over
// from another launcher; but not while it moves, though only the launcher heard of that.
func TestAccused(t *testing.T) {
	began := time.Now()
	after := func(d time.Duration) time.Time { return began.Add(d) }
	starts, ends := &wire.Migrating{State: wire.MoveStarts}, &wire.Migrating{State: wire.MoveEnds}
	for name, tc := range map[string]struct {
		change func(j *job)
		at     time.Duration
		lost   bool
	}{
		"it is silent":           {lost: true},
		"it is heard":            {change: func(j *job) { j.hosts[1].heard.has(began) }},
		"it is not in the world": {change: func(j *job) { j.members = []int{0} }},
		"it moves":               {change: func(j *job) { j.migrating(j.hosts[1], starts) }, at: liveness.Default().MoveLease - 5*time.Second},
		"it moves for long":      {change: func(j *job) { j.migrating(j.hosts[1], starts) }, at: liveness.Default().MoveLease + 5*time.Second, lost: true},
		"it stands still long after it began to move": {change: func(j *job) {
			j.migrating(j.hosts[1], starts)
			j.hosts[1].heard.reading(after(100 * time.Second))
		}, at: 100*time.Second + liveness.Default().MoveLease - 5*time.Second},
		"it stands still for long, long after it began to move": {change: func(j *job) {
			j.migrating(j.hosts[1], starts)
			j.hosts[1].heard.reading(after(100 * time.Second))
		}, at: 100*time.Second + liveness.Default().MoveLease + 5*time.Second, lost: true},
		"it has been moved":                 {change: func(j *job) { j.migrating(j.hosts[1], starts); j.migrating(j.hosts[1], ends) }, lost: true},
		"it moves, and the user has a word": {change: func(j *job) { j.spec.Lease = time.Second; j.migrating(j.hosts[1], starts) }, lost: true},
		"it starts":                         {change: func(j *job) { delete(j.ready, 1) }},
		"it has yet to be taken over":       {change: func(j *job) { delete(j.ready, 1); j.hosts[1].adopted = true }, lost: true},
		"this launcher has just begun": {change: func(j *job) {
			delete(j.ready, 1)
			j.hosts[1].adopted, j.silences.floor = true, after(-time.Second)
		}},
		"it has begun a while ago": {change: func(j *job) {
			delete(j.ready, 1)
			j.hosts[1].adopted, j.silences.floor = true, after(-time.Second)
		}, at: 4 * time.Second, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			j := &job{spec: &Spec{}, change: changeOf(2, flexible), ended: map[int]bool{}, silences: silences{timing: liveness.Default(), since: map[int]time.Time{}},
				ready: map[int]*wire.Ready{0: {Host: topology.Host{}}, 1: {Host: topology.Host{}}}}
			hangups := 0
			for id := range 2 {
				j.hosts = append(j.hosts, &host{id: id, hangUp: func() { hangups++ }})
			}
			j.hosts[0].heard.has(began)
			j.hosts[1].heard.reading(began.Add(-4 * time.Second))
			if tc.change != nil {
				tc.change(j)
			}
			j.accused(j.hosts[0], &wire.Evidence{Peer: 1, Suspicion: wire.LeaseOver})
			j.judge(after(tc.at))
			if lost := j.hosts[1].lostWhy != ""; lost != tc.lost || lost != (hangups == 1) {
				t.Errorf("lost %v after %d hang-ups, want %v", lost, hangups, tc.lost)
			}
		})
	}
}

// TestAccusedWhileItMoves: that a host is to be moved excuses its silence, and the moment in which its peers find it again; not a broken
// way to one of them, for which the other would have to go, and not where the user has said how long hosts may be silent.
func TestAccusedWhileItMoves(t *testing.T) {
	starts, ends := &wire.Migrating{State: wire.MoveStarts}, &wire.Migrating{State: wire.MoveEnds}
	for name, tc := range map[string]struct {
		said   *wire.Migrating // last, by the host of which others say that it is silent
		silent time.Duration   // to the launcher until now; after that it is heard again
		lease  time.Duration
		after  time.Duration // what follows is told
		lost   bool
	}{
		"it is heard all the time":                           {said: starts, lost: true},
		"it stands still":                                    {said: starts, silent: 60 * time.Second},
		"it is back, and its peers are yet to hear it":       {said: starts, silent: 60 * time.Second, after: reunion - time.Second},
		"it is back, and its peers do not hear it":           {said: starts, silent: 60 * time.Second, after: reunion + time.Second, lost: true},
		"its move is over, and its peers are yet to hear it": {said: ends, silent: 60 * time.Second, after: time.Second},
		"its move is over, and its peers do not hear it":     {said: ends, silent: 60 * time.Second, after: reunion + time.Second, lost: true},
		"the user has said for how long":                     {said: starts, silent: 60 * time.Second, lease: 70 * time.Second, after: time.Second, lost: true},
		"it stands still for as long as the user has said":   {said: starts, silent: 60 * time.Second, lease: 60 * time.Second, lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Now()
			j := &job{spec: &Spec{JobOptions: wire.JobOptions{Lease: tc.lease}, Note: func(string, ...any) {}}, change: changeOf(3, flexible), ended: map[int]bool{}, ready: map[int]*wire.Ready{},
				silences: silences{timing: liveness.Default(), since: map[int]time.Time{}}, worlds: map[int]wire.World{0: {Epoch: 1, Order: []int{0, 1, 2}}}}
			for id := range 3 {
				j.ready[id] = &wire.Ready{}
				j.hosts = append(j.hosts, &host{id: id, name: fmt.Sprintf("h%d", id), hangUp: func() {}})
				j.hosts[id].heard.has(now)
			}
			moving := j.hosts[2]
			j.migrating(moving, starts)
			if tc.silent > 0 {
				moving.heard.reading(now.Add(-tc.silent))
				j.listen(now)
			}
			for _, h := range j.hosts[:2] {
				j.accused(h, &wire.Evidence{Peer: 2, Suspicion: wire.LeaseOver})
			}
			if tc.after > 0 {
				moving.heard.has(now)
				j.judge(now)
				j.listen(now)
				j.migrating(moving, tc.said)
				j.silences.looked = now.Add(tc.after)
				j.listen(now.Add(tc.after))
			}
			if lost := moving.lostWhy != ""; lost != tc.lost || j.hosts[0].lostWhy != "" || j.hosts[1].lostWhy != "" {
				t.Errorf("lost %v, %q and %q; want %v", lost, j.hosts[0].lostWhy, j.hosts[1].lostWhy, tc.lost)
			}
		})
	}
}

// TestAwaits: for whom a world waits is told once in each epoch, and of a newcomer and another host it is the newcomer, whoever
// says it.
func TestAwaits(t *testing.T) {
	for name, tc := range map[string]struct {
		by, of int
		epoch  uint32
		want   string
	}{
		"a newcomer is missed":          {0, 2, 5, "gorun: epoch 5 has waited for h2 for 4 s: it and h0 do not reach each other"},
		"it misses another":             {2, 1, 5, "gorun: epoch 5 has waited for h2 for 4 s: it and h1 do not reach each other"},
		"hosts of a world":              {0, 1, 5, "gorun: epoch 5 has waited for h1 for 4 s: it and h0 do not reach each other"},
		"newcomers":                     {2, 3, 5, "gorun: epoch 5 has waited for h3 for 4 s: it and h2 do not reach each other"},
		"of an epoch before":            {0, 2, 4, ""},
		"a host that nobody knows":      {0, 9, 5, ""},
		"a host that is in no world":    {0, 4, 5, ""},
		"a host that has been given up": {0, 5, 5, ""},
	} {
		var notes []string
		j := &job{spec: &Spec{Note: func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) }}, epoch: 5,
			members: []int{0, 1, 2, 3, 5}, ended: map[int]bool{5: true}, ready: map[int]*wire.Ready{},
			worlds: map[int]wire.World{0: {Epoch: 4, Order: []int{1, 0}}, 1: {Epoch: 4}}}
		for id := range 6 {
			j.ready[id] = &wire.Ready{}
			j.hosts = append(j.hosts, &host{id: id, name: fmt.Sprintf("h%d", id)})
		}
		for range 2 {
			j.evidence(j.hosts[tc.by], &wire.Evidence{Epoch: tc.epoch, Peer: tc.of, AwaitedMS: 4200})
		}
		if got := strings.Join(notes, "; "); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestNewcomerIsLost: of a host that holds the state of the ranks and one that has been in no world, which do not reach each other,
// the newcomer is lost, though it was the one to say so.
func TestNewcomerIsLost(t *testing.T) {
	now := time.Now()
	j := &job{spec: &Spec{Note: func(string, ...any) {}}, change: changeOf(3, flexible), ended: map[int]bool{}, silences: silences{timing: liveness.Default(), since: map[int]time.Time{}},
		ready: map[int]*wire.Ready{}, worlds: map[int]wire.World{0: {Epoch: 1, Order: []int{0}}}}
	for id := range 3 {
		j.ready[id] = &wire.Ready{}
		j.hosts = append(j.hosts, &host{id: id, name: fmt.Sprintf("h%d", id), hangUp: func() {}})
		j.hosts[id].heard.has(now)
	}
	for _, by := range []int{1, 2} {
		j.accused(j.hosts[by], &wire.Evidence{Peer: 0, Suspicion: wire.NeverReached})
	}
	if j.hosts[0].lostWhy != "" || j.hosts[1].lostWhy != "cut off from 1 host: h0" || j.hosts[2].lostWhy != "cut off from 1 host: h0" {
		t.Errorf("lost are %q, %q and %q", j.hosts[0].lostWhy, j.hosts[1].lostWhy, j.hosts[2].lostWhy)
	}
}

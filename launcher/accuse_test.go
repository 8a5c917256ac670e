package launcher

import (
	"testing"
	"time"

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
		"it moves":               {change: func(j *job) { j.migrating(j.hosts[1], starts) }, at: wire.MoveLease - 5*time.Second},
		"it moves for long":      {change: func(j *job) { j.migrating(j.hosts[1], starts) }, at: wire.MoveLease + 5*time.Second, lost: true},
		"it stands still long after it began to move": {change: func(j *job) {
			j.migrating(j.hosts[1], starts)
			j.hosts[1].heard.reading(after(100 * time.Second))
		}, at: 100*time.Second + wire.MoveLease - 5*time.Second},
		"it stands still for long, long after it began to move": {change: func(j *job) {
			j.migrating(j.hosts[1], starts)
			j.hosts[1].heard.reading(after(100 * time.Second))
		}, at: 100*time.Second + wire.MoveLease + 5*time.Second, lost: true},
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
			j := &job{spec: &Spec{}, change: &change{}, ended: map[int]bool{}, silences: silences{since: map[int]time.Time{}},
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
			j.accused(j.hosts[0], &wire.Silent{Peer: 1, Text: "silent for 30s"})
			j.judge(after(tc.at))
			if lost := j.hosts[1].lostWhy == "silent for 30s"; lost != tc.lost || lost != (hangups == 1) {
				t.Errorf("lost %v after %d hang-ups, want %v", lost, hangups, tc.lost)
			}
		})
	}
}

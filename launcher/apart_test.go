package launcher

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
)

// TestApart: that two hosts do not hear each other is told once, and when it is over; not while the launcher does not hear one of
// them either, which is told otherwise, and not of hosts that are no members.
func TestApart(t *testing.T) {
	silent, back := func(peer int) *wire.Evidence { return &wire.Evidence{Peer: peer, UnansweredMS: 5000} }, func(peer int) *wire.Evidence {
		return &wire.Evidence{Peer: peer}
	}
	const told = "gorun: host2 has been silent to host1 for 5 s, although both are heard here: look at the network between them; host2 silent to host1"
	for name, tc := range map[string]struct {
		said func(j *job, say func(by int, m *wire.Evidence))
		deaf int // a host that the launcher does not hear, 0 for none
		want string
	}{
		"one says so":          {said: func(_ *job, say func(int, *wire.Evidence)) { say(1, silent(2)) }, want: told},
		"both say so":          {said: func(_ *job, say func(int, *wire.Evidence)) { say(1, silent(2)); say(2, silent(1)) }, want: told},
		"it is over":           {said: func(_ *job, say func(int, *wire.Evidence)) { say(1, silent(2)); say(1, back(2)) }, want: told + "; gorun: host1 hears host2 again after 5 s; host2 back to host1"},
		"only one hears again": {said: func(_ *job, say func(int, *wire.Evidence)) { say(1, silent(2)); say(2, silent(1)); say(1, back(2)) }, want: told},
		"one hears for a moment": {said: func(_ *job, say func(int, *wire.Evidence)) {
			say(1, silent(2))
			say(2, silent(1))
			say(2, back(1))
			say(2, silent(1))
		}, want: told},
		"the other hears": {said: func(_ *job, say func(int, *wire.Evidence)) {
			say(1, silent(2))
			say(2, silent(1))
			say(2, back(1))
			say(1, back(2))
		},
			want: told + "; gorun: host1 hears host2 again after 5 s; host2 back to host1"},
		"nobody hears it": {said: func(_ *job, say func(int, *wire.Evidence)) { say(1, silent(2)); say(1, back(2)) }, deaf: 2},
		"it hears nobody": {said: func(_ *job, say func(int, *wire.Evidence)) { say(1, silent(2)) }, deaf: 1},
		"it was silent a moment ago": {said: func(j *job, say func(int, *wire.Evidence)) {
			j.hosts[2].absent = time.Now()
			say(1, silent(2))
			say(1, back(2))
		}},
		"it was silent some time ago": {said: func(j *job, say func(int, *wire.Evidence)) {
			j.hosts[2].absent = time.Now().Add(-reunion - time.Second)
			say(1, silent(2))
		}, want: told},
		"the launcher stood still": {said: func(j *job, say func(int, *wire.Evidence)) {
			j.silences.floor = time.Now()
			say(1, silent(2))
			say(1, back(2))
		}},
		"it ends":                  {said: func(j *job, say func(int, *wire.Evidence)) { j.ended[2] = true; say(1, silent(2)); say(1, back(2)) }},
		"there is no such host":    {said: func(_ *job, say func(int, *wire.Evidence)) { say(1, silent(3)); say(1, silent(-1)) }},
		"it does not hear itself":  {said: func(_ *job, say func(int, *wire.Evidence)) { say(1, silent(1)) }},
		"it was not silent before": {said: func(_ *job, say func(int, *wire.Evidence)) { say(1, back(2)) }},
	} {
		var heard []string
		j := &job{ended: map[int]bool{}, ready: map[int]*wire.Ready{0: {}, 1: {}, 2: {}}, silences: silences{timing: liveness.Default(), since: map[int]time.Time{}}}
		j.spec = &Spec{Note: func(format string, args ...any) { heard = append(heard, fmt.Sprintf(format, args...)) },
			WatchHosts: func(e HostEvent) { heard = append(heard, fmt.Sprintf("%s %s to %s", e.Host, e.State, e.To)) }}
		now := time.Now()
		for id := range 3 {
			h := newHost(id, fmt.Sprint("host", id), j.spec, wire.Job{})
			if h.heard.reading(now); id > 0 && id == tc.deaf {
				h.heard.reading(now.Add(-time.Minute))
			}
			j.hosts = append(j.hosts, h)
		}
		tc.said(j, func(by int, m *wire.Evidence) {
			j.handle(event{host: by, msg: m})
			j.listenApart(now)
		})
		j.listenApart(now)
		if got := strings.Join(heard, "; "); got != tc.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, tc.want)
		}
	}
}

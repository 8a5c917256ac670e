package liveness_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"gorun/contrib/must"
)

// TestTimeline: what the package documentation lists happens, after how many seconds. Four hosts run a job with the
// default timing; after 5 s something befalls them. Events are "seconds after that: what". A host ends its ranks by its
// own clock, within 1 s. Other events may come up to 3 s later, which is how long gossip and evidence take, and no
// others may come.
func TestTimeline(t *testing.T) {
	doc, err := os.ReadFile("doc.go")
	must.Do(t, err)
	dies := func(id int, hangsUp bool) func(*network) {
		return func(w *network) { w.dead[id], w.hungUp[id] = true, hangsUp }
	}
	pauses := func(id int, seconds float64) func(*network) {
		return func(w *network) {
			w.paused[id] = true
			w.later(seconds, func() { w.paused[id] = false })
		}
	}
	cut := func(some []int, others ...int) func(*network) {
		return func(w *network) { w.part(some, others, true) }
	}
	breaks := func(ids ...int) func(*network) {
		return func(w *network) {
			for _, id := range ids {
				w.cuts[id] = true
			}
		}
	}
	sshdEnds := func(id int, seconds float64) func(*network) {
		return func(w *network) {
			w.cuts[id], w.hungUp[id] = true, true
			w.later(seconds, func() { w.cuts[id], w.hungUp[id] = false, false })
		}
	}
	leases := func(seconds int, fixed bool) func(*network) {
		return func(w *network) { w.leases(time.Duration(seconds)*time.Second, fixed) }
	}
	const launcher, forever = 4, 1e6
	for name, tc := range map[string]struct {
		befalls []func(*network)
		want    []string
	}{
		"a host's daemon is killed": {[]func(*network){dies(3, true)}, []string{"1.5: evicted 3: no contact"}},
		"a host's daemon is killed, and ssh logs in": {[]func(*network){dies(3, true), func(w *network) { w.blind = true }},
			[]string{"5: silent 3", "5: evicted 3: no contact"}},
		"a host loses power, and no other knows it": {[]func(*network){dies(3, false), func(w *network) { w.strange[3] = true }},
			[]string{"5: silent 3", "30: evicted 3: not heard"}},
		"a host with virtual GPUs hangs": {[]func(*network){leases(120, false), pauses(3, forever)},
			[]string{"5: silent 3", "120: evicted 3: reported"}},
		"a host hangs with --lease 10": {[]func(*network){leases(10, true), pauses(3, forever)}, []string{"5: silent 3", "10: evicted 3: reported"}},
		"a host moves with --lease 10": {[]func(*network){leases(10, true), announce(3), pauses(3, forever)}, []string{"5: silent 3", "10: evicted 3: reported"}},
		"a host has moved and hears no peer": {[]func(*network){announce(3), pauses(3, 115), cut([]int{3}, 0, 1, 2)},
			[]string{"5: silent 3", "115: back 3", "125: broken path", "125: broken path", "125: broken path", "125: evicted 3: reported"}},
		"two groups do not hear each other": {[]func(*network){cut([]int{0, 1}, 2, 3)},
			[]string{"5: broken path", "5: broken path", "5: broken path", "5: broken path", "30: evicted 2: cut off", "30: evicted 3: reported"}},
		"a connection to the launcher breaks":  {[]func(*network){breaks(0)}, []string{"5: silent 0", "30: evicted 0: no contact", "30: host 0 ends"}},
		"a host's sshd ends with its sessions": {[]func(*network){sshdEnds(3, forever)}, []string{"5: silent 3", "30: evicted 3: no contact", "30: host 3 ends"}},
		"a host's sshd is restarted":           {[]func(*network){sshdEnds(3, 25)}, []string{"5: silent 3", "25: back 3"}},
		"the launcher's process ends": {[]func(*network){pauses(launcher, forever), breaks(0, 1, 2, 3)},
			[]string{"2: host 0 ends", "2: host 1 ends", "2: host 2 ends", "2: host 3 ends"}},
		"a host loses power":                      {[]func(*network){dies(3, false)}, []string{"5: silent 3", "30: evicted 3: reported"}},
		"a host hangs":                            {[]func(*network){pauses(3, forever)}, []string{"5: silent 3", "30: evicted 3: reported"}},
		"a host is paused within its lease":       {[]func(*network){pauses(3, 25)}, []string{"5: silent 3", "25: back 3"}},
		"a host moves":                            {[]func(*network){announce(3), pauses(3, 110)}, []string{"5: silent 3", "110: back 3"}},
		"a host moves and does not come back":     {[]func(*network){announce(3), pauses(3, forever)}, []string{"5: silent 3", "120: evicted 3: reported"}},
		"a host is cut off from one peer":         {[]func(*network){cut([]int{0}, 1)}, []string{"5: broken path", "30: evicted 1: reported"}},
		"a host is cut off from many":             {[]func(*network){cut([]int{0}, 1, 2, 3)}, []string{"5: broken path", "5: broken path", "5: broken path", "30: evicted 0: cut off"}},
		"a host is cut off from all":              {[]func(*network){cut([]int{0}, 1, 2, 3, launcher)}, []string{"5: silent 0", "30: evicted 0: reported", "37: host 0 ends"}},
		"a joiner is not reached by one":          {[]func(*network){joins(3), cut([]int{3}, 0)}, []string{"4: awaited 3", "35: evicted 3: unreached"}},
		"a joiner is reached by none":             {[]func(*network){joins(3), cut([]int{3}, 0, 1, 2)}, []string{"4: awaited 3", "30: evicted 3: unreached"}},
		"a host is cut off from the launcher":     {[]func(*network){cut([]int{0}, launcher)}, []string{"5: silent 0", "65: host 0 ends", "95: evicted 0: reported"}},
		"the launcher is cut off":                 {[]func(*network){cut([]int{launcher}, 0, 1, 2, 3)}, append([]string{"5: isolated"}, isolated("37", "40: abandoned")...)},
		"the launcher is paused for a short time": {[]func(*network){pauses(launcher, 25)}, nil},
		"the launcher dies":                       {[]func(*network){pauses(launcher, forever)}, []string{"37: host 0 ends", "37: host 1 ends", "37: host 2 ends", "37: host 3 ends"}},
	} {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(string(doc), "\n//\t"+name+"  ") {
				t.Error("the package documentation does not list this case")
			}
			w := newNetwork(t, 1, 4)
			w.run(5 * time.Second)
			began := w.now
			for _, befall := range tc.befalls {
				befall(w)
			}
			w.run(150 * time.Second)
			var got []string
			for _, e := range w.log {
				got = append(got, fmt.Sprintf("%.2f: %s", e.at.Sub(began).Seconds(), e.what))
			}
			if !inTime(got, tc.want) {
				t.Errorf("%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
			}
		})
	}
}

// announce has a host announce a move.
func announce(id int) func(*network) { return func(w *network) { w.moves(id) } }

// joins makes a host a joiner of a world that is being formed.
func joins(id int) func(*network) {
	return func(w *network) { w.joiner[id], w.missing[id] = true, true }
}

// isolated returns what follows when the launcher hears none of four hosts, which end the job by themselves.
func isolated(ends, last string) (want []string) {
	for id := range 4 {
		want = append(want, fmt.Sprintf("5: silent %d", id))
	}
	for id := range 4 {
		want = append(want, fmt.Sprintf("%s: host %d ends", ends, id))
	}
	return append(want, last)
}

// inTime reports whether the events are the wanted ones, and none later than TestTimeline allows.
func inTime(got, want []string) bool {
	if len(got) != len(want) {
		return false
	}
	for i, w := range want {
		var at, due float64
		a, what, _ := strings.Cut(got[i], ": ")
		b, wanted, _ := strings.Cut(w, ": ")
		fmt.Sscan(a, &at)
		fmt.Sscan(b, &due)
		slack := 3.0
		if strings.HasSuffix(wanted, " ends") {
			slack = 1
		}
		if what != wanted || at < due-0.5 || at > due+slack {
			return false
		}
	}
	return true
}

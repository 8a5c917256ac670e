package standing

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"gorun/contrib/must"
	"gorun/rendezvous/wire"
)

func of(spec string) (out []wire.MemberState) {
	for part := range strings.SplitSeq(spec, ",") {
		var h wire.MemberState
		name, slots, _ := strings.Cut(part, ":")
		h.Host, h.Addr = name, name+":1"
		fmt.Sscan(slots, &h.Slots)
		out = append(out, h)
	}
	return out
}

func TestFit(t *testing.T) {
	for _, tc := range []struct {
		hosts, want string
		request     wire.Reserve
	}{
		{"a:4,b:4", "a:4", wire.Reserve{Ranks: 4}},
		{"a:4,b:2", "b:2", wire.Reserve{Ranks: 2}},           // the host that is filled most
		{"a:1,b:2,c:4", "b:1,c:4", wire.Reserve{Ranks: 5}},   // few hosts
		{"a:4,b:4", "a:4,b:4", wire.Reserve{}},               // all
		{"a:4,b:4", "no hosts", wire.Reserve{Ranks: 9}},      // too many
		{"a:4,b:1,c:3", "a:2,c:2", wire.Reserve{PerHost: 2}}, // wherever two fit
		{"a:4,b:4,c:4", "a:2,b:2", wire.Reserve{Ranks: 4, PerHost: 2}},
		{"a:4,b:1", "no hosts", wire.Reserve{Ranks: 4, PerHost: 2}},
		{"a:4,b:4", "b:3", wire.Reserve{Ranks: 3, Shares: []wire.Share{{Host: "b", Slots: 3}}}},
		{"a:4,b:4", "no hosts", wire.Reserve{Shares: []wire.Share{{Host: "b", Slots: 3}, {Host: "b", Slots: 2}}}},
		{"a:4", "no hosts", wire.Reserve{Shares: []wire.Share{{Host: "c", Slots: 1}}}},
		{"a:4", "no hosts", wire.Reserve{Shares: []wire.Share{{Host: "a", Slots: -1}}}},
	} {
		q := queue{hosts: of(tc.hosts)}
		if got := describe(fit(q.free(), q.all(), tc.request)); got != tc.want {
			t.Errorf("%+v on %s: %s, want %s", tc.request, tc.hosts, got, tc.want)
		}
	}
}

// TestInIdle: what a job would get does not depend on what others have.
func TestInIdle(t *testing.T) {
	const full, drains = "a:4,b:4", "c:9"
	hosts := append(of(full), of(drains)...)
	hosts[0].Used, hosts[1].Used, hosts[2].Draining = 4, 3, true
	for _, tc := range []struct {
		want    string
		request wire.Reserve
	}{
		{"a:4", wire.Reserve{Ranks: 4}},
		{"a:4,b:4", wire.Reserve{}},
		{"a:2,b:4", wire.Reserve{Ranks: 2, Elastic: true}}, // it grows on other hosts only
		{"a:1,b:1", wire.Reserve{Ranks: 1, PerHost: 1, Elastic: true}},
		{"a:2,b:1", wire.Reserve{Ranks: 2, Most: 3, Elastic: true}},
		{"b:2", wire.Reserve{Ranks: 2, Shares: []wire.Share{{Host: "b", Slots: 2}}}},
	} {
		got, err := inIdle(hosts, tc.request)
		if err != nil || describe(got) != tc.want {
			t.Errorf("%+v: %s, %v, want %s", tc.request, describe(got), err, tc.want)
		}
	}
	if got, err := inIdle(hosts, wire.Reserve{Ranks: 9}); got != nil || err == nil {
		t.Errorf("9 ranks get %s of 8 slots", describe(got))
	}
	if hosts[0].Used != 4 {
		t.Error("who asks finds its hosts changed")
	}
}

func TestFirstComeFirstServed(t *testing.T) {
	q := queue{hosts: of("a:4,b:4")}
	var jobs []*ticket
	for _, ranks := range []int{6, 8, 1} {
		x := &ticket{request: wire.Reserve{Ranks: ranks}}
		must.Do(t, q.add(x))
		jobs = append(jobs, x)
	}
	q.grant()
	if jobs[0].shares == nil || jobs[1].shares != nil || jobs[2].shares != nil {
		t.Fatalf("the small job overtook the large one: %v, %v, %v", jobs[0].shares, jobs[1].shares, jobs[2].shares)
	}
	if got, want := q.waitsFor(jobs[2]), "waits for 1 rank; free are a:0,b:2, 1 waiting before it"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	q.remove(jobs[0])
	q.hosts[0].Used = 4 // its daemon has not ended yet
	if q.grant(); jobs[1].shares != nil {
		t.Error("slots in use were given away")
	}
	q.hosts[0].Used = 0
	if q.grant(); jobs[1].shares == nil {
		t.Error("the next job got nothing")
	}
	if err := q.add(&ticket{request: wire.Reserve{Ranks: 9}}); err == nil {
		t.Error("a job that never fits waits for ever")
	}
}

// Whatever comes and goes, no slot is given to two jobs, and an idle cluster gives the next job its slots.
func TestNeverTwice(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		q := queue{hosts: of("a:1,b:2,c:3,d:8")}
		for range 100 {
			if r.IntN(3) > 0 {
				x := &ticket{request: wire.Reserve{Ranks: r.IntN(15)}}
				if r.IntN(3) == 0 {
					x.request.PerHost = 1 + r.IntN(3)
				}
				if x.request.Ranks > 0 && r.IntN(3) == 0 {
					x.request.Elastic, x.request.Most = true, x.request.Ranks*r.IntN(3)
				}
				q.add(x) // or not
			} else if len(q.tickets) > 0 {
				q.remove(q.tickets[r.IntN(len(q.tickets))])
			}
			if i := r.IntN(len(q.hosts)); r.IntN(4) == 0 {
				q.hosts[i].Draining = !q.hosts[i].Draining
			}
			q.follow()
			q.grant()
			given := map[string]int{}
			for i, x := range q.tickets {
				if i == 0 && !x.granted && fit(q.free(), q.all(), x.request) != nil {
					t.Fatalf("seed %d: the first waits: %+v of %s", seed, x.request, describe(q.free()))
				}
				if most := x.request.Most; x.request.Elastic && most > 0 && x.request.PerHost == 0 && slots(x.shares) > most {
					t.Fatalf("seed %d: %d slots for a job of %d at most", seed, slots(x.shares), most)
				}
				for _, s := range x.shares {
					given[s.Host] += s.Slots
				}
			}
			for _, h := range q.hosts {
				if given[h.Host] > h.Slots {
					t.Fatalf("seed %d: %d of %d slots of %s were given away", seed, given[h.Host], h.Slots, h.Host)
				}
			}
		}
	}
}

func slots(shares []wire.Share) (n int) {
	for _, s := range shares {
		n += s.Slots
	}
	return n
}

// TestGrow: an elastic job gets back what it lost before others begin, and more only if no job waits.
func TestGrow(t *testing.T) {
	q := queue{hosts: of("a:2,b:2,c:2")}
	job := &ticket{request: wire.Reserve{Ranks: 4, Elastic: true, Shares: []wire.Share{{Host: "a", Slots: 2}, {Host: "b", Slots: 1}, {Host: "c", Slots: 2}}}}
	later := &ticket{request: wire.Reserve{Ranks: 2}}
	step := func(want string) {
		t.Helper()
		q.follow()
		q.grant()
		if got := describe(job.shares); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	must.Do(t, q.add(job))
	step("a:2,c:2,b:1")
	must.Do(t, q.add(later))
	q.hosts = of("a:2,b:2")
	step("a:2,b:1")
	q.hosts = of("a:2,b:2,d:4")
	step("a:2,b:1") // d is not among its hosts
	if describe(later.shares) != "d:2" {
		t.Errorf("the next job has %s", describe(later.shares))
	}
	q.hosts = of("a:2,b:2,c:2,d:4")
	q.add(&ticket{request: wire.Reserve{Ranks: 8}}) // waits
	step("a:2,b:1,c:1")                             // four, and no more
	q.discovering, q.hosts = true, of("d:4")        // a daemon that knows only itself takes nothing away
	step("a:2,b:1,c:1")
	q.discovering = false
	step("no hosts")
}

// FuzzKey: a key file has one or two keys, each of them its text without blanks around it, and long enough.
func FuzzKey(f *testing.F) {
	f.Add([]byte(aKey + "\n"))
	f.Add([]byte(aKey + "\r\n\n \n" + strings.ToLower(aKey)))
	f.Add([]byte(" \x00 short"))
	f.Fuzz(func(t *testing.T, text []byte) {
		key, err := ParseKey(text)
		if err != nil {
			return
		}
		if n := len(key.secrets); n < 1 || n > 2 {
			t.Fatalf("%d keys", n)
		}
		for _, secret := range key.secrets {
			if len(secret) < minKey || !bytes.Contains(text, secret) {
				t.Fatalf("%q", secret)
			}
		}
	})
}

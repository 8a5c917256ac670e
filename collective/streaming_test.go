package collective

import (
	"testing"

	"gorun/collective/kernel"
)

// Results are stored past the caches from 32 MiB of them together on, unless their lines are in the caches anyway;
// what is sent on never is.
func TestLargeResultsAreStoredPastCaches(t *testing.T) {
	memory := [4][]byte{}
	for i := range memory {
		memory[i] = make([]byte, nonTemporal) // never written: it costs nothing
	}
	for _, test := range []struct {
		name    string
		world   EngineWorld
		n       int // bytes of a tensor
		inPlace bool
		past    bool
	}{
		{"below", local(2), nonTemporal/2 - 4, false, false},
		{"two results", local(2), nonTemporal / 2, false, true},
		{"one result", local(1), nonTemporal / 2, false, false},
		{"one large result", local(1), nonTemporal, false, true},
		{"in place", local(2), nonTemporal, true, false},
		{"below, of two hosts", twoHosts, nonTemporal/2 - 4, false, false},
		{"of two hosts", twoHosts, nonTemporal / 2, false, true},
	} {
		o := &op{engine: New(Config{})}
		g := newGroup(test.world, 0, nil)
		o.reset(g, 1, 1, "x")
		for i := range g.local() {
			in, out := memory[2*i][:test.n], memory[2*i+1][:test.n]
			if test.inPlace {
				out = in
			}
			o.own.put(i, &Request{Kind: Allreduce, Name: "x", Type: kernel.Float32, Op: kernel.Sum, Pre: 1, Post: 1, Shape: []int{test.n / 4}, In: in, Out: out})
		}
		o.layout()
		p := plansOf(o, o.lead())
		if p.last.NonTemporal != test.past || p.combine.NonTemporal != test.past {
			t.Errorf("%s: past the caches: %v by the last step, %v by the only one, should be %v",
				test.name, p.last.NonTemporal, p.combine.NonTemporal, test.past)
		}
		if p.mid.NonTemporal || p.join.NonTemporal {
			t.Errorf("%s: what is sent on is stored past the caches", test.name)
		}
	}
}

// local is a world of ranks of one host.
func local(ranks int) EngineWorld {
	w := EngineWorld{Hosts: []HostRanks{{ID: 10, Name: "host1"}}, Size: ranks}
	for r := range ranks {
		w.Hosts[0].Ranks = append(w.Hosts[0].Ranks, r)
	}
	return w
}

package collective

import (
	"slices"
	"strings"
	"testing"

	"gorun/collective/kernel"
)

// twoHosts has ranks 0 and 1 on host1, link id 10, which is us, and rank 2 on host2, link id 20.
var twoHosts = EngineWorld{Hosts: []HostRanks{{10, "host1", []int{0, 1}}, {20, "host2", []int{2}}}, Self: 0, Size: 3}

func newReadiness(g *group) *readiness {
	ops := &operations{open: map[uint64]*op{}, fresh: func(g *group, id uint64, name string) *op {
		o := new(op)
		o.reset(g, 1, id, name)
		return o
	}}
	return &readiness{operations: ops, groups: &directory{byID: map[uint32]*group{g.id: g}}}
}

// happened returns the events since the last call.
func (s *operations) happened() (events []event) {
	events, s.events = s.events, nil
	return events
}

// starts reports whether one of some events is the start of an operation.
func starts(events []event) bool {
	return slices.ContainsFunc(events, func(e event) bool { return e.start })
}

func part(name string) *Request {
	return &Request{Kind: Allreduce, Name: name, Type: kernel.Int8, Op: kernel.Sum, Pre: 1, Post: 1, Shape: []int{4}}
}

// steps of a negotiation are written as: a part of local rank 0 or 1, or a ready message of host2 (h), about a
// name; expected is + for a part that makes the host ready, ! for a start, 0 for nothing.
func TestReadiness(t *testing.T) {
	for _, test := range []struct{ name, steps, expected string }{
		{"local ranks first", "0a 1a ha", "0 + !"},
		{"peer first", "ha 0a 1a", "0 0 +!"},
		{"between", "0a ha 1a", "0 0 +!"},
		{"names do not touch", "0a 1b hb ha 0b 1a", "0 0 0 0 +! +!"},
		{"peer one use ahead", "0a ha 1a ha -a 1a 0a", "0 0 +! 0 0 0 +!"},
		{"peer one use ahead at the end", "ha 0a 1a ha -a 0a 1a -a 0a 1a ha", "0 0 +! 0 0 0 +! 0 0 + !"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := newGroup(twoHosts, 0, nil)
			tab := newReadiness(g)
			var got []string
			for i, step := range strings.Fields(test.steps) {
				name := step[1:]
				switch step[0] {
				case 'h':
					m := appendReady(nil, 0, uint32(i), []Request{*part(name)}, []int{2})
					if err := tab.hear(20, m); err != nil {
						t.Fatal(err)
					}
				case '-': // the operation finishes
					tab.finish(tab.open[hash(0, name)])
				default:
					if err := tab.submit(g, int(step[0]-'0'), *part(name)); err != nil {
						t.Fatal(err)
					}
				}
				s := ""
				for _, e := range tab.happened() {
					if e.send != nil {
						s += "+"
					}
					if e.start {
						s += "!"
					}
				}
				if s == "" {
					s = "0"
				}
				got = append(got, s)
			}
			if s := strings.Join(got, " "); s != test.expected {
				t.Errorf("%s gives %s, want %s", test.steps, s, test.expected)
			}
		})
	}
}

func TestReadinessRefusesPeers(t *testing.T) {
	g := newGroup(twoHosts, 0, nil)
	tab := newReadiness(g)
	say := func(group uint32, peer int, ranks ...int) error {
		parts := make([]Request, len(ranks))
		for i := range parts {
			parts[i] = *part("a")
		}
		err := tab.hear(peer, appendReady(nil, group, 0, parts, ranks))
		return err
	}
	for name, err := range map[string]error{"unknown group": say(9, 20, 2), "unknown host": say(0, 30, 2), "ourselves": say(0, 10, 0, 1),
		"our rank": say(0, 20, 1), "rank twice": say(0, 20, 2, 2)} {
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if len(tab.open) != 0 {
		t.Error("a refused message left an operation behind")
	}
	if err := say(0, 20, 2); err != nil {
		t.Error(err)
	}
	if err := say(0, 20, 2); err != nil {
		t.Error(err)
	}
	if err := say(0, 20, 2); err == nil {
		t.Error("a host was two uses ahead")
	}
}

// Two names that hash alike cannot be used at one time, and no one adds one to the other.
func TestCollision(t *testing.T) {
	g := newGroup(twoHosts, 0, nil)
	tab := newReadiness(g)
	tab.submit(g, 0, *part("a"))
	o := tab.open[hash(0, "a")]
	o.name = "b"
	if err := tab.submit(g, 1, *part("a")); err == nil || err.Code != CodeInvalid {
		t.Errorf("a part of another name: %v", err)
	}
	o.name = "a"
	tab.submit(g, 1, *part("a"))
	o.votes[1].set, o.voted = true, 2
	o.votes[1].raw = appendReady(nil, 0, 0, []Request{*part("c")}, []int{2})
	o.votes[1].ready, _ = readReady(o.votes[1].raw)
	tab.happened()
	tab.decide(o)
	if v := tab.happened(); len(v) != 1 || v[0].start || v[0].err == nil || v[0].err.Code != CodeMismatch {
		t.Errorf("a host with another name: %+v", v)
	}
}

func TestReadinessLeave(t *testing.T) {
	g := newGroup(twoHosts, 0, nil)
	tab := newReadiness(g)
	hear := func(name string) {
		if err := tab.hear(20, appendReady(nil, 0, 0, []Request{*part(name)}, []int{2})); err != nil {
			t.Fatal(err)
		}
	}
	tab.submit(g, 0, *part("waits"))
	hear("ready")
	tab.submit(g, 0, *part("ready"))
	tab.submit(g, 0, *part("a waits too"))
	tab.happened()
	tab.leave(2)
	failed := tab.happened()
	if len(failed) != 2 || failed[0].op.name != "a waits too" || failed[1].op.name != "waits" {
		t.Fatalf("failed are %+v", failed)
	}
	if want := `allreduce "waits": rank 2 on host2 left before it submitted its part`; failed[1].err.Text != want {
		t.Errorf("got %s, want %s", failed[1].err.Text, want)
	}
	if err := tab.submit(g, 1, *part("ready")); err != nil || !starts(tab.happened()) {
		t.Errorf("what host2 was ready for does not start: %v", err)
	}
	if err := tab.submit(g, 1, *part("new")); err == nil || err.Code != CodeShutdown {
		t.Errorf("a new operation: %v", err)
	}
	tab.leave(2)
	if again := tab.happened(); len(again) != 0 {
		t.Errorf("leaving again fails %+v", again)
	}
	// A use that another host is ready for ahead of time cannot come either.
	o := tab.open[hash(0, "ready")]
	tab.finish(o)
	if len(tab.open) != 0 {
		t.Error("an operation is left")
	}
}

// TestNextUseAfterLeave: a contribution that waits for the end of a use of its name fails there if a rank has left whose host did not
// declare the next one, and counts if the host did.
func TestNextUseAfterLeave(t *testing.T) {
	for _, ahead := range []bool{false, true} {
		g := newGroup(twoHosts, 0, nil)
		tab := newReadiness(g)
		hear := func() {
			if err := tab.hear(20, appendReady(nil, 0, 0, []Request{*part("a")}, []int{2})); err != nil {
				t.Fatal(err)
			}
		}
		hear()
		tab.submit(g, 0, *part("a"))
		tab.submit(g, 1, *part("a"))
		if ahead {
			hear()
		}
		o := tab.open[hash(0, "a")]
		o.waiting = append(o.waiting, early{0, *part("a")}) // as of a rank that had joined when this use began
		tab.leave(2)
		tab.happened()
		tab.finish(o)
		failed := tab.happened()
		if ahead {
			if len(failed) != 0 || tab.submit(g, 1, *part("a")) != nil || !starts(tab.happened()) {
				t.Errorf("what host2 was ready for fails or does not start: %+v", failed)
			}
		} else if len(failed) != 1 || failed[0].err == nil || len(tab.open) != 0 {
			t.Errorf("what rank 0 waits for ends with %+v, %d operations open", failed, len(tab.open))
		}
	}
}

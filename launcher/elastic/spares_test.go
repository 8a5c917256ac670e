package elastic_test

import (
	"fmt"
	"testing"
	"time"

	e "gorun/launcher/elastic"
)

// sparesJob is three ranks on hosts a and b, with two slots each, and a spare that loads its program on the third host.
func sparesJob(t *testing.T, p e.Policy) *job {
	t.Helper()
	p.NP, p.Spares, p.ResetLimit = 3, 1, -1
	j := newJob(t, e.Config{Policy: p})
	j.expect("start 0 a; start 1 b; start 2 c", hosts("a b c", 2))
	j.expect("", e.HostUp{Host: 0})
	j.expect("epoch 1: 0@0.0 1@0.1 2@1.0", e.HostUp{Host: 1})
	j.expect("", e.HostUp{Host: 2})
	j.expect("spare 3@2.0", e.Committed{Host: 0, Epoch: 1})
	j.expect("", e.Started{Process: 3})
	return j
}

// left has processes leave the world of an epoch, and compares what follows.
func (j *job) left(epoch uint32, want string, processes ...int) {
	j.Helper()
	for i, p := range processes {
		if i == len(processes)-1 {
			j.expect(want, e.Rejoining{Process: p, Epoch: epoch})
		} else {
			j.expect("", e.Rejoining{Process: p, Epoch: epoch})
		}
	}
}

// TestSpareEnters: a spare takes the place of what is lost or leaves, whatever is to follow a failure. Another one starts
// once the world runs.
func TestSpareEnters(t *testing.T) {
	ready := e.Rejoining{Process: 3}
	for _, tc := range []struct {
		name   string
		policy e.Policy
		events []e.Event
		want   string
	}{
		{"a rank fails", e.Policy{}, []e.Event{ready, e.Exited{Process: 1, Code: 1}}, "epoch 2: 0@0.0 2@1.0 3@2.0"},
		{"and the survivors go on", e.Policy{MinNP: 2, OnFailure: e.Shrink}, []e.Event{ready, e.Exited{Process: 1, Code: 1}}, "epoch 2: 0@0.0 2@1.0 3@2.0"},
		{"its place is to be taken", e.Policy{OnFailure: e.Wait}, []e.Event{ready, e.Exited{Process: 1, Code: 1}}, "epoch 2: 0@0.0 2@1.0 3@2.0"},
		{"a host is lost", e.Policy{}, []e.Event{ready, e.HostLost{Host: 1}}, "note; epoch 2: 0@0.0 1@0.1 3@2.0"},
		{"a host is lost, and its spare", e.Policy{MinNP: 2}, []e.Event{ready, e.HostLost{Host: 2}}, "note; spare 4@1.1"},
		{"the spare loads its program", e.Policy{}, []e.Event{e.Exited{Process: 1, Code: 1}}, "epoch 2: 0@0.0 2@1.0 3@2.0"},
		{"nobody waits for one that loads", e.Policy{MinNP: 2, OnFailure: e.Shrink}, []e.Event{e.Exited{Process: 1, Code: 1}}, "epoch 2: 0@0.0 2@1.0, spare 3@2.0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			j := sparesJob(t, tc.policy)
			j.expect(tc.want, tc.events...)
		})
	}
	j := sparesJob(t, e.Policy{})
	j.expect("epoch 2: 0@0.0 2@1.0 3@2.0", ready, e.Exited{Process: 1, Code: 1})
	j.expect("spare 4@1.1", e.Committed{Host: 0, Epoch: 2}) // a.1 is not used again
}

// TestSilentSpare: a world does not wait for a spare whose host is not heard.
func TestSilentSpare(t *testing.T) {
	silent := 2
	j := newJob(t, e.Config{Policy: e.Policy{NP: 2, Spares: 2, ResetLimit: -1}, Hears: func(host int) bool { return host != silent }})
	j.expect("start 0 a; start 1 b; start 2 c; start 3 d", hosts("a b c d", 1))
	j.expect("epoch 1: 0@0.0 1@1.0", e.HostUp{Host: 0}, e.HostUp{Host: 1})
	j.expect("spare 2@2.0 3@3.0", e.HostUp{Host: 2}, e.HostUp{Host: 3}, e.Committed{Host: 0, Epoch: 1})
	j.expect("epoch 2: 1@1.0 3@3.0, spare 2@2.0; drop 0", e.Rejoining{Process: 2}, e.Rejoining{Process: 3}, e.Exited{Process: 0, Code: 1})
	j.expect("note", e.Committed{Host: 1, Epoch: 2}, e.Exited{Process: 3, Code: 1}) // no other slot
	silent = -1
	j.expect("epoch 3: 1@1.0 2@2.0; drop 3", e.Tick{})
}

// TestSpareLeaves: the end of a spare is none of the world's. Its slot counts as that of any process.
func TestSpareLeaves(t *testing.T) {
	j := sparesJob(t, e.Policy{})
	j.expect("spare 4@2.1", e.Rejoining{Process: 3}, e.Exited{Process: 3, Code: 1})
	j.expect("note", e.Exited{Process: 4}) // it never asks for a world
	j.now += time.Hour
	j.expect("", e.Tick{})

	j = sparesJob(t, e.Policy{})
	j.expect("drop 2; spare 4@1.1", hosts("a b", 2)) // its host is withdrawn
	j.expect("", e.Exited{Process: 3, Code: 137})
	j.expect("", e.Rejoining{Process: 4})
	j.expect("no spare", e.Exited{Process: 0})
}

// TestSpareFailsBeforeInit: a spare that fails before init takes its slot from other spares alone, and two of them in a
// row end it with spares. Ranks go on, in the same slots and on the same hosts, and start there anew.
func TestSpareFailsBeforeInit(t *testing.T) {
	j := sparesJob(t, e.Policy{Blacklist: e.BlacklistHost})
	j.expect("note; spare 4@2.1", e.Exited{Process: 3, Code: 1})
	j.expect("spare 5@1.1", e.Rejoining{Process: 4}, e.Exited{Process: 4, Code: 1}) // c is not used again: this one asked for its world
	j.expect("note", e.Exited{Process: 5, Code: 1})                                 // it is the first in a row
	j.now += time.Hour
	j.expect("note", e.Tick{}) // no slot is left for another

	j = newJob(t, e.Config{Policy: e.Policy{NP: 2, MaxNP: 3, Spares: 1, ResetLimit: -1}})
	j.expect("start 0 a", hosts("a", 2))
	j.expect("epoch 1: 0@0.0 1@0.1", e.HostUp{Host: 0})
	j.expect("start 1 b", e.Committed{Host: 0, Epoch: 1}, hosts("a b", 2))
	j.expect("spare 2@1.0 3@1.1", e.HostUp{Host: 1})
	if got, want := j.m.Step(j.now, e.Exited{Process: 3, Code: 2, Why: "no GPU"}), "[{a spare on b, slot 1, cannot start: no GPU: that slot gets no other one}]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
	j.expect("note; news 1 added=true removed=false", e.Exited{Process: 2, Code: 2})
	j.left(1, "epoch 2: 0@0.0 1@0.1 4@1.0", 0, 1) // a rank joins without having been a spare
}

// TestSparesGrow: where more ranks may run than do, they load their program before the others hear of them.
func TestSparesGrow(t *testing.T) {
	j := newJob(t, e.Config{Policy: e.Policy{NP: 2, MaxNP: 3, Spares: 1, ResetLimit: -1}})
	j.expect("start 0 a", hosts("a", 2))
	j.expect("epoch 1: 0@0.0 1@0.1", e.HostUp{Host: 0})
	j.expect("", e.Committed{Host: 0, Epoch: 1})
	j.now += 5 * time.Second
	j.expect("note", e.Tick{}) // no slot for the spare
	j.expect("start 1 b", hosts("a b", 2))
	j.expect("spare 2@1.0 3@1.1", e.HostUp{Host: 1})
	j.expect("news 1 added=true removed=false", e.Rejoining{Process: 3})
	j.left(1, "epoch 2: 0@0.0 1@0.1 3@1.1, spare 2@1.0", 0, 1)
	j.expect("", e.Committed{Host: 0, Epoch: 2}, e.Rejoining{Process: 2})

	j = sparesJob(t, e.Policy{})
	j.now += time.Minute // it does not report that it waits
	j.expect("epoch 2: 0@0.0 2@1.0 3@2.0", e.Exited{Process: 1, Code: 1})
}

// TestDrain: the ranks of a drained host leave it together, at a commit, for a spare if there is one; and none of them if
// there is no room. Then the host may be used again.
func TestDrain(t *testing.T) {
	departs := func(j *job, want e.Departure) {
		j.Helper()
		if got := j.m.Departure("b"); fmt.Sprint(got) != fmt.Sprint(want) {
			j.Errorf("b has come to %+v, want %+v", got, want)
		}
	}
	j := sparesJob(t, e.Policy{MinNP: 2})
	j.expect("spare 3@2.0 4@2.1", e.Drain{Host: "b"}) // and one that waits after that
	departs(j, e.Departure{Drained: true, Left: []int{2}, Loading: true})
	j.expect("news 1 added=true removed=true", e.Rejoining{Process: 3})
	departs(j, e.Departure{Drained: true, Left: []int{2}})
	j.expect("start 3 d", hosts("a b c d", 2)) // it stays drained
	j.left(1, "epoch 2: 0@0.0 1@0.1 3@2.0, spare 4@2.1; drop 1", 0, 1, 2)
	j.expect("", e.HostLost{Host: 1})
	departs(j, e.Departure{Drained: true})
	j.expect("", e.Drain{Host: "b", Move: true}, e.Drain{Host: "b", Undo: true, Move: true}) // the user has ordered it
	j.expect("start 4 b", e.Drain{Host: "b", Undo: true})
	departs(j, e.Departure{})
	j.expect("start 4 b", e.HostLost{Host: 4}, e.Drain{Host: "b", Move: true}, e.Drain{Host: "b", Undo: true, Move: true})

	j = newJob(t, e.Config{Policy: e.Policy{NP: 2, MinNP: 1, Spares: 1, ResetLimit: -1}})
	j.expect("start 0 b", hosts("b", 2))
	j.expect("epoch 1: 0@0.0 1@0.1", e.HostUp{Host: 0})
	j.expect("start 1 a", e.Committed{Host: 0, Epoch: 1}, hosts("b a", 2))
	j.expect("spare 2@1.0", e.HostUp{Host: 1})
	j.expect("spare 2@1.0 3@1.1", e.Drain{Host: "b"}) // all ranks train on until those load
	departs(j, e.Departure{Drained: true, Left: []int{0, 1}, Kept: 2, Loading: true})
	j.expect("news 1 added=true removed=true", e.Rejoining{Process: 2})
	j.left(1, "epoch 2: 0@0.0 2@1.0, spare 3@1.1", 0, 1) // one has the state
	j.expect("news 2 added=true removed=true", e.Committed{Host: 0, Epoch: 2}, e.Rejoining{Process: 3})
	j.left(2, "epoch 3: 2@1.0 3@1.1; drop 0", 0, 2)

	j = newJob(t, e.Config{Policy: e.Policy{NP: 2, MinNP: 2, Spares: 1, ResetLimit: -1}})
	j.expect("start 0 b; start 1 a; start 2 c", hosts("b a c", 1))
	j.expect("epoch 1: 0@0.0 1@1.0", e.HostUp{Host: 0}, e.HostUp{Host: 1})
	j.expect("spare 2@2.0", e.HostUp{Host: 2}, e.Committed{Host: 0, Epoch: 1})
	j.expect("note", e.Exited{Process: 2, Code: 1})                // a rank may still start there
	j.expect("news 1 added=true removed=true", e.Drain{Host: "b"}) // and does: no spare comes
	j.left(1, "epoch 2: 1@1.0 3@2.0; drop 0", 0, 1)

	j = elasticJob(t, e.Policy{NP: 4, MinNP: 3, ResetLimit: -1})
	j.expect("news 1 added=false removed=true", e.Drain{Host: "b"}) // one of them must stay
	departs(j, e.Departure{Drained: true, Left: []int{2, 3}, Kept: 1})

	j = elasticJob(t, e.Policy{NP: 4, MinNP: 4, ResetLimit: -1, Listed: true, CooldownMin: time.Second, CooldownMax: time.Second})
	j.expect("", e.Drain{Host: "b"}) // both must stay
	j.expect("note", e.Exited{Process: 0, Code: 1})
	j.now += 3 * time.Second
	j.expect("epoch 2: 1@0.1 2@1.0 3@1.1 4@0.0", e.Tick{})

	j = elasticJob(t, e.Policy{NP: 4, MinNP: 2, ResetLimit: -1})
	j.expect("news 1 added=false removed=true", e.Drain{Host: "b"})
	j.left(1, "epoch 2: 0@0.0 1@0.1; drop 1", 0, 1, 2, 3)
}

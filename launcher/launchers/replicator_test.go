package launchers

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/rendezvous/authority"
	"gorun/rendezvous/standing"
	"gorun/rendezvous/wire"
)

// TestWhoCannotSaveIsNoElector: an elector is lost, and of the other hosts the first two answer, but their disks are full: the third takes its
// place.
func TestWhoCannotSaveIsNoElector(t *testing.T) {
	key := testKey(t)
	home, join := startDaemon(t, key, "a", disk{})
	startDaemon(t, key, "c", disk{}, join)
	startDaemon(t, key, "d", disk{full: true}, join)
	startDaemon(t, key, "e", disk{full: true}, join)
	startDaemon(t, key, "f", disk{}, join)
	said := make(chan string, 10)
	client := standing.Client{Key: key, Version: testVersion}
	addrs := func() map[string]string { return addressesOf(membersOf(t.Context(), client, home)) }
	limit := time.Now().Add(30 * time.Second)
	for len(addrs()) < 5 {
		if time.Now().After(limit) {
			t.Fatalf("the cluster has only %v", addrs())
		}
		time.Sleep(20 * time.Millisecond)
	}
	r := newReplicator("ab", authority.Snapshot{Electors: []string{"a", "b", "c"}}, handover{}, addrs(), replication{
		Client: client, Self: "a", Home: home, Lease: 4 * time.Second, Shares: func() []wire.Share { return nil },
		Note:       func(format string, args ...any) { said <- fmt.Sprintf(format, args...) },
		Superseded: func(uint64) { t.Error("there is another launcher") },
	})
	r.Start()
	r.Keep([]byte("null"), r.Lease)
	select {
	case got := <-said:
		if want := "gorun: a, c, f now elect the next launcher if this one is lost"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	case <-time.After(60 * time.Second):
		r.mu.Lock()
		t.Errorf("the electors are %v", r.holder.Electors())
		r.mu.Unlock()
	}
	r.Close(0)
}

// TestKeepsRequest: what the user asked for is in each snapshot, encoded once, until the job ends.
func TestKeepsRequest(t *testing.T) {
	tree := &wire.Tree{Root: "/proj", Files: []wire.TreeFile{{Path: "a", Link: "b"}}}
	request := &wire.Detach{Program: "train.py", Args: []string{"gorun"}, Tree: tree}
	r := newReplicator("ab", authority.Snapshot{Electors: []string{"a"}}, handover{Name: "a/1", Request: request}, nil, replication{Self: "a", Shares: func() []wire.Share { return nil }})
	request.Tree = &wire.Tree{} // nobody looks at it again
	for _, snapshot := range []string{"1", "2"} {
		r.Keep([]byte(snapshot), time.Second)
		s := &succession{Snapshot: authority.Snapshot{Value: r.holder.Next("a").Value}}
		must.Do(t, s.decode())
		if h := s.Handover; h.Name != "a/1" || string(h.Launcher) != snapshot || h.Request == nil || h.Request.Program != "train.py" || h.Request.Tree.Name() != tree.Name() {
			t.Errorf("%+v", h)
		}
	}
}

// TestBeatsBesideValue: an elector hears of its launcher while a long value is under way to it, and has no vote yet.
func TestBeatsBesideValue(t *testing.T) {
	key := testKey(t)
	home, _ := startDaemon(t, key, "a", disk{})
	r := newReplicator("ab", authority.Snapshot{Electors: []string{"a"}}, handover{}, map[string]string{"a": home}, replication{
		Client: standing.Client{Key: key, Version: testVersion}, Self: "a", Lease: time.Minute, Shares: func() []wire.Share { return nil }})
	r.Keep([]byte("null"), r.Lease)
	r.asking[asked{"a", true}] = true
	var asking sync.WaitGroup
	for _, beat := range []bool{false, true} {
		r.send(t.Context(), beat, &asking)
		asking.Wait()
		if _, heard := r.answered["a"]; heard != beat || r.holder.Next("a").Value == nil {
			t.Errorf("at a beat %v: %v, of a value %v", beat, r.answered, r.holder.Next("a"))
		}
	}
}

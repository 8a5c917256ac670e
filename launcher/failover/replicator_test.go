package failover

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gorun/contrib/must"
	"gorun/launcher/failover/failovertest"
	"gorun/rendezvous/authority"
	"gorun/rendezvous/standing"
	"gorun/rendezvous/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestWhoCannotSaveIsNoElector: an elector is lost, and of the other hosts the first two answer, but their disks are full: the third takes its
// place.
func TestWhoCannotSaveIsNoElector(t *testing.T) {
	key := failovertest.Key(t)
	home, join := failovertest.Daemon(t, key, "a", failovertest.Disk{})
	failovertest.Daemon(t, key, "c", failovertest.Disk{}, join)
	failovertest.Daemon(t, key, "d", failovertest.Disk{Full: true}, join)
	failovertest.Daemon(t, key, "e", failovertest.Disk{Full: true}, join)
	failovertest.Daemon(t, key, "f", failovertest.Disk{}, join)
	said := make(chan string, 10)
	client := standing.Client{Key: key, Version: failovertest.Version}
	addrs := func() map[string]string { return Addresses(Members(t.Context(), client, home)) }
	limit := time.Now().Add(30 * time.Second)
	for len(addrs()) < 5 {
		if time.Now().After(limit) {
			t.Fatalf("the cluster has only %v", addrs())
		}
		time.Sleep(20 * time.Millisecond)
	}
	r := New("ab", authority.Snapshot{Electors: []string{"a", "b", "c"}}, Handover{}, addrs(), Config{
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
	r := New("ab", authority.Snapshot{Electors: []string{"a"}}, Handover{Name: "a/1", Request: request}, nil, Config{Self: "a", Shares: func() []wire.Share { return nil }})
	request.Tree = &wire.Tree{} // nobody looks at it again
	for _, snapshot := range []string{"1", "2"} {
		r.Keep([]byte(snapshot), time.Second)
		s := &Succession{Snapshot: authority.Snapshot{Value: r.holder.Next("a").Value}}
		must.Do(t, s.decode())
		if h := s.Handover; h.Name != "a/1" || string(h.Launcher) != snapshot || h.Request == nil || h.Request.Program != "train.py" || h.Request.Tree.Name() != tree.Name() {
			t.Errorf("%+v", h)
		}
	}
}

// TestFirstOf: the first that answer, and no more than are wanted are asked at once.
func TestFirstOf(t *testing.T) {
	for _, c := range []struct{ names, answer, want, asked string }{
		{"abcdef", "abcdef", "ab", "ab"},
		{"abcdef", "bcef", "bc", "abc"},
		{"abcdef", "f", "f", "abcdef"},
		{"a", "a", "a", "a"},
		{"", "", "", ""},
	} {
		asked := make(chan string, len(c.names))
		got := firstOf(2, strings.Split(c.names, ""), func(name string) bool {
			asked <- name
			return strings.Contains(c.answer, name)
		})
		close(asked)
		var all []string
		for name := range asked {
			all = append(all, name)
		}
		slices.Sort(all)
		if strings.Join(got, "") != c.want || strings.Join(all, "") != c.asked {
			t.Errorf("of %q, where %q answer: %v, and %v were asked", c.names, c.answer, got, all)
		}
	}
}

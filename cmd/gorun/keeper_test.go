//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"gorun/rendezvous/authority"
	"gorun/rendezvous/standing"
	"gorun/rendezvous/wire"
)

// disk is what a host saves for jobs, unless it is full. No launcher begins there.
type disk struct{ full bool }

func (disk) Load() ([]authority.State, error) { return nil, nil }

func (d disk) Save(authority.State) error {
	if d.full {
		return errors.New("no space left on device")
	}
	return nil
}

func (disk) Lives(authority.State) bool              { return true }
func (disk) Begin(authority.State, authority.Legacy) {}
func (disk) Desert(authority.State, int) error       { return nil }
func (disk) Return(authority.State) error            { return nil }

// standAlone starts the daemon of a host, to the end of the test, and returns where it and its gossip are.
func standAlone(t *testing.T, key standing.Key, name string, heirs standing.Heirs, join ...string) (addr, gossip string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- standing.Serve(ctx, nil, standing.Config{Key: key, Name: name, Version: version, Slots: 1, Listener: l, Bind: "127.0.0.1",
			Address: "127.0.0.1", Join: join, Heirs: heirs, Command: func() *exec.Cmd { return exec.Command("cat") }, Log: slog.New(slog.DiscardHandler), Ready: func(gossip string) { ready <- gossip }})
	}()
	select {
	case gossip = <-ready:
	case err := <-ended:
		t.Fatal(name, err)
	}
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(name, err)
		}
	})
	return l.Addr().String(), gossip
}

// TestWhoCannotSaveIsNoElector: an elector is lost, and of the other hosts the first two answer, but their disks are full: the third takes its
// place.
func TestWhoCannotSaveIsNoElector(t *testing.T) {
	key, err := standing.ParseKey([]byte(strings.Repeat("k", 32)))
	if err != nil {
		t.Fatal(err)
	}
	home, join := standAlone(t, key, "a", disk{})
	standAlone(t, key, "c", disk{}, join)
	standAlone(t, key, "d", disk{full: true}, join)
	standAlone(t, key, "e", disk{full: true}, join)
	standAlone(t, key, "f", disk{}, join)
	said := make(chan string, 10)
	k := &keeper{client: standing.Client{Key: key, Version: version}, self: "a", home: home, lease: 4 * time.Second, shares: func() []wire.Share { return nil },
		note: func(format string, args ...any) { said <- fmt.Sprintf(format, args...) }, stand: func(uint64) { t.Error("there is another launcher") }}
	k.hold("ab", authority.Legacy{Electors: []string{"a", "b", "c"}})
	limit := time.Now().Add(30 * time.Second)
	for k.addrs = k.members(t.Context()); len(k.addrs) < 5; k.addrs = k.members(t.Context()) {
		if time.Now().After(limit) {
			t.Fatalf("the cluster has only %v", k.addrs)
		}
		time.Sleep(20 * time.Millisecond)
	}
	k.begin()
	k.Keep([]byte("null"), k.lease)
	select {
	case got := <-said:
		if want := "gorun: a, c, f decide from now on who carries the job on if this launcher is lost"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
	case <-time.After(60 * time.Second):
		k.mu.Lock()
		t.Errorf("the electors are %v", k.holder.Electors())
		k.mu.Unlock()
	}
	k.close(0)
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

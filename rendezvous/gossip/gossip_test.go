package gossip_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/rendezvous/gossip"
)

func start(t *testing.T, id int, key []byte) *gossip.Gossip {
	t.Helper()
	g, err := gossip.Start(gossip.Config{ID: id, Job: "test", Key: key, Bind: "127.0.0.1", Advertise: "127.0.0.1",
		Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
	must.Do(t, err)
	t.Cleanup(func() { must.Report(t, g.Close()) })
	return g
}

// await returns the first event for which ok holds.
func await(t *testing.T, g *gossip.Gossip, ok func(gossip.Event) bool) gossip.Event {
	t.Helper()
	deadline := time.After(20 * time.Second)
	for {
		select {
		case ev := <-g.Events():
			if ok(ev) {
				return ev
			}
		case <-deadline:
			t.Fatal("no such event")
		}
	}
}

func TestMembersAndMessages(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	a, b, c := start(t, 0, key), start(t, 1, key), start(t, 2, key)
	for _, g := range []*gossip.Gossip{b, c} {
		must.Do(t, g.Join(t.Context(), []string{a.Addr()}))
	}
	joined := func(peer int) func(gossip.Event) bool {
		return func(ev gossip.Event) bool { return ev.Kind == gossip.Joined && ev.Peer == peer }
	}
	await(t, a, joined(2))
	await(t, c, joined(1)) // learned from a

	big := bytes.Repeat([]byte("x"), 100_000) // does not fit a packet
	must.Do(t, c.Send(1, big))
	ev := await(t, b, func(ev gossip.Event) bool { return ev.Kind == gossip.Message })
	if ev.Peer != 2 || !bytes.Equal(ev.Message, big) {
		t.Errorf("got %d bytes from host %d", len(ev.Message), ev.Peer)
	}
	if err := c.Send(9, []byte("hello")); err == nil || !strings.Contains(err.Error(), "host 9: not a member") {
		t.Errorf("sending to a stranger: %v", err)
	}
}

// TestOpenedLater: one that only listens keeps those waiting who want to join it, and can be closed meanwhile.
func TestOpenedLater(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	listen := func(id int) *gossip.Gossip {
		g, err := gossip.Listen(gossip.Config{ID: id, Job: "test", Key: key, Bind: "127.0.0.1", Advertise: "127.0.0.1",
			Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
		must.Do(t, err)
		return g
	}
	a, never := listen(0), listen(2)
	b := start(t, 1, key)
	t.Cleanup(func() { must.Report(t, a.Close()) })
	if err := a.Send(1, []byte("hello")); err == nil {
		t.Error("one that only listens has sent something")
	}
	if err := a.Join(t.Context(), []string{b.Addr()}); err == nil || !strings.Contains(err.Error(), "not opened yet") {
		t.Errorf("one that only listens joins: %v", err)
	}
	must.Report(t, a.SetMeta([]byte("known later")))
	must.Report(t, a.Leave())
	joined := make(chan error, 1)
	go func() { joined <- b.Join(t.Context(), []string{a.Addr()}) }()
	conn := must.Dial(t, never.Addr())
	defer conn.Close()
	must.Report(t, never.Close())
	must.Do(t, a.Open())
	if err := a.Open(); err == nil {
		t.Error("opened twice")
	}
	must.Report(t, <-joined)
	await(t, a, func(ev gossip.Event) bool { return ev.Kind == gossip.Joined && ev.Peer == 1 })
	// memberlist answers from the moment on that it listens, which is before it counts itself: b may hear of a only
	// with what a sends of its own accord.
	await(t, b, func(ev gossip.Event) bool { return ev.Kind == gossip.Joined && ev.Peer == 0 })
	if !slices.ContainsFunc(b.Members(), func(m gossip.Member) bool { return m.Name == "0" && string(m.Meta) == "known later" }) {
		t.Errorf("b knows %+v", b.Members())
	}
}

// TestLease: how long a member may be silent is the user's affair, also if many are lost at once: each of them is asked
// for a second, one after the other, before its lease begins.
func TestLease(t *testing.T) {
	const lease = 2 * time.Second
	key := bytes.Repeat([]byte{7}, 32)
	for _, lost := range []int{1, 5} {
		t.Run(fmt.Sprint(lost), func(t *testing.T) {
			t.Parallel()
			member := func(id int) *gossip.Gossip {
				g, err := gossip.Start(gossip.Config{ID: id, Job: "test", Key: key, Bind: "127.0.0.1", Advertise: "127.0.0.1", Lease: lease,
					Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
				must.Do(t, err)
				return g
			}
			a := member(0)
			defer a.Close()
			var others []*gossip.Gossip
			for id := range lost {
				g := member(1 + id)
				others = append(others, g)
				must.Do(t, g.Join(t.Context(), []string{a.Addr()}))
				await(t, a, func(ev gossip.Event) bool { return ev.Kind == gossip.Joined })
			}
			since := time.Now()
			for _, g := range others {
				g.Close() // without goodbye
			}
			for range lost {
				await(t, a, func(ev gossip.Event) bool { return ev.Kind == gossip.Left })
			}
			if took := time.Since(since); took < time.Second || took > lease+time.Duration(lost)*time.Second+8*time.Second {
				t.Errorf("noticed after %v", took)
			}
		})
	}
}

func TestWrongKeyIsRefused(t *testing.T) {
	a := start(t, 0, bytes.Repeat([]byte{1}, 32))
	b := start(t, 1, bytes.Repeat([]byte{2}, 32))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if err := b.Join(ctx, []string{a.Addr()}); err == nil {
		t.Error("a member with another key joined")
	}
}

// TestMovedMember: a member that is reached at another address stays the same member, and is not given up.
func TestMovedMember(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 32)
	member := func(id int) *gossip.Gossip {
		g, err := gossip.Start(gossip.Config{ID: id, Job: "test", Key: key, Bind: "127.0.0.1", Advertise: "127.0.0.1", Lease: 2 * time.Second,
			Log: slog.New(slog.NewTextHandler(io.Discard, nil))})
		must.Do(t, err)
		t.Cleanup(func() { g.Close() })
		return g
	}
	a, b := member(0), member(1)
	must.Do(t, b.Join(t.Context(), []string{a.Addr()}))
	await(t, a, func(ev gossip.Event) bool { return ev.Kind == gossip.Joined })
	// Where a now believes b to be there is no host; it is silent for a as long as that lasts.
	must.Do(t, a.Route(1, "127.0.0.1:1"))
	if err := a.Send(1, []byte("lost")); err == nil {
		t.Error("a message reached a member that is not where it was sent to")
	}
	must.Do(t, a.Route(1, b.Addr()))
	must.Report(t, a.Send(1, []byte("found")))
	await(t, b, func(ev gossip.Event) bool { return string(ev.Message) == "found" })
	if err := a.Route(1, "nowhere"); err == nil {
		t.Error("an address without a port was taken")
	}
}

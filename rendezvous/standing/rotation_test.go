package standing_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/rendezvous/gossip"
	"gorun/rendezvous/keytls"
	"gorun/rendezvous/standing"
	"gorun/rendezvous/wire"
)

// TestKeyRotation: the key is replaced in three steps while a job runs, by daemons that follow each other. Launchers with the
// old key and with the new one get in until the old one goes, the hosts stay together, and the job goes on.
func TestKeyRotation(t *testing.T) {
	t.Parallel()
	launcher := func(names ...string) standing.Client { return standing.Client{Key: keyOf(names...), Version: "v"} }
	old, next := launcher("old"), launcher("new")
	// Connections of others do not come from this address, so none has a port while its daemon is replaced.
	const addr = "127.9.0.1:0"
	a := startWith(t, addr, standing.Config{Key: old.Key, Name: "a", Slots: 1})
	b := startWith(t, addr, standing.Config{Key: old.Key, Name: "b", Slots: 1, Join: []string{a.gossip}})
	both := func(c standing.Client) func() bool {
		return func() bool {
			for _, m := range []*member{a, b} {
				if known, err := c.Members(t.Context(), m.addr); err != nil || len(known.Members) != 2 {
					return false
				}
			}
			return true
		}
	}
	must.Soon(t, "cluster of two", both(old))
	l, err := launcher("old", "new").Reserve(t.Context(), a.addr, wire.Reserve{Ranks: 2}, nil) // as of a file with both
	must.Do(t, err)
	defer l.Close()
	var streams []*standing.DaemonStream
	for _, host := range []string{"a", "b"} {
		s, err := l.Start(t.Context(), host)
		must.Do(t, err)
		defer s.Close()
		echo(t, s)
		streams = append(streams, s)
	}
	for _, step := range []struct {
		keys []string
		in   []standing.Client
		out  []standing.Client
	}{
		{[]string{"old", "new"}, []standing.Client{old, next}, nil},
		{[]string{"new", "old"}, []standing.Client{old, next}, nil},
		{[]string{"new"}, []standing.Client{next}, []standing.Client{old}},
	} {
		key := keyOf(step.keys...)
		a.leave()
		<-a.ended
		a = startWith(t, a.addr, standing.Config{Key: key, Name: "a", Slots: 1, Port: a.gossipPort(), Join: []string{b.gossip}})
		must.Soon(t, "cluster of two on the way to "+strings.Join(step.keys, ","), both(launcher("old", "new")))
		b.leave()
		<-b.ended
		b = startWith(t, b.addr, standing.Config{Key: key, Name: "b", Slots: 1, Port: b.gossipPort(), Join: []string{a.gossip}})
		for _, c := range step.in {
			must.Soon(t, "cluster of two with "+strings.Join(step.keys, ","), both(c))
		}
		for _, c := range step.out {
			if _, err := c.Members(t.Context(), a.addr); !errors.Is(err, standing.ErrKey) {
				t.Errorf("the old key: %v", err)
			}
		}
		for _, s := range streams {
			echo(t, s)
		}
	}
	if known, err := next.Members(t.Context(), a.addr); err != nil || known.Members[0].Used != 1 || known.Members[1].Used != 1 {
		t.Errorf("the job's slots: %+v, %v", known, err)
	}
}

// gossipPort is where the daemon gossips.
func (m *member) gossipPort() int {
	m.t.Helper()
	addr, err := net.ResolveTCPAddr("tcp", m.gossip)
	must.Do(m.t, err)
	return addr.Port
}

// TestKeyChannelOfAnotherVersion: a daemon that proves the key in another way is refused with what to do.
func TestKeyChannelOfAnotherVersion(t *testing.T) {
	t.Parallel()
	other, err := keytls.New(bytes.Repeat([]byte{1}, keytls.SeedSize), "gorun-cluster/1", errors.New("another key"))
	must.Do(t, err)
	l, err := tls.Listen("tcp", "127.0.0.1:0", other)
	must.Do(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if conn, err := l.Accept(); err == nil {
			conn.(*tls.Conn).Handshake()
			conn.Close()
		}
	}()
	_, err = client.Members(t.Context(), l.Addr().String())
	if !saysNo(err, "the daemon is of another version, which this one cannot speak with", "run the same gorun binary on every host") {
		t.Errorf("a daemon of another version: %v", err)
	}
	l.Close()
	<-done
}

// tap passes on connections to an address, and keeps what the first one sends.
type tap struct {
	net.Listener
	mu   sync.Mutex
	sent bytes.Buffer
}

func newTap(t *testing.T, to string) *tap {
	t.Helper()
	l := must.Listen(t)
	tapped := &tap{Listener: l}
	var passing sync.WaitGroup
	passing.Go(func() {
		near, err := l.Accept()
		if err != nil {
			return
		}
		defer near.Close()
		far, err := net.Dial("tcp", to)
		if err != nil {
			return
		}
		passing.Go(func() { io.Copy(near, far); near.Close() })
		io.Copy(far, io.TeeReader(near, tapped))
		far.Close()
	})
	t.Cleanup(func() { l.Close(); passing.Wait() })
	return tapped
}

func (t *tap) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.sent.Write(b)
}

// TestHostileReplay: what a host has gossiped comes again, when the host is gone. It does not become a host again: neither
// if nobody is there, nor if another one has its address. A stream is refused, since the proof before it was for another
// one. Packets have nothing like that; those of a member without a daemon stand for packets of one that is gone.
func TestHostileReplay(t *testing.T) {
	t.Parallel()
	a := start(t, "a", 1)
	way := newTap(t, a.gossip)
	gone := start(t, "gone", 1, way.Addr().String())
	must.Soon(t, "cluster of two", func() bool { return len(a.jobs().Members) == 2 })
	gone.stop()
	<-gone.ended
	a.stop()
	<-a.ended
	way.mu.Lock()
	sent := bytes.Clone(way.sent.Bytes())
	way.mu.Unlock()

	for _, there := range []bool{false, true} {
		var log bytes.Buffer
		var mu sync.Mutex
		heard := make(chan struct{})
		say := sync.OnceFunc(func() { close(heard) })
		b := startWith(t, "127.0.0.1:0", standing.Config{Name: "b", Slots: 1, Log: slog.New(slog.NewTextHandler(writer(func(line []byte) {
			mu.Lock()
			defer mu.Unlock()
			if log.Write(line); bytes.Contains(line, []byte("does not count")) {
				say()
			}
		}), nil))})
		want := 1
		if there {
			startAt(t, gone.addr, "another", 1, b.gossip)
			want = 2
		}
		must.Soon(t, "cluster before the replay", func() bool { return len(b.jobs().Members) == want })
		conn := must.Dial(t, b.gossip)
		conn.Write(sent)
		if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the stream is not refused: %v", err)
		}
		select {
		case <-heard:
			t.Error("what came by the stream was believed")
		default:
		}
		_, port, _ := net.SplitHostPort(gone.addr)
		number, _ := strconv.Atoi(port)
		meta, err := wire.Marshal(&wire.ClusterMember{Port: number, Version: "v", Slots: 1, Born: 1})
		must.Do(t, err)
		ended, end := context.WithCancel(t.Context())
		end()
		ghost, err := gossip.Start(gossip.Config{Name: "gone", Job: "cluster", Key: key.GossipKey(), Bind: "127.0.0.1", Meta: meta, Log: slog.New(slog.DiscardHandler)})
		must.Do(t, err)
		ghost.Join(ended, []string{b.gossip})
		select {
		case <-heard:
		case <-time.After(20 * time.Second):
			mu.Lock()
			t.Errorf("the replay was not noticed:\n%s", &log)
			mu.Unlock()
		}
		conn.Close()
		ghost.Close()
		for _, m := range b.jobs().Members {
			if m.Host == "gone" {
				t.Errorf("a ghost, with another host at its address: %v", there)
			}
		}
	}
}

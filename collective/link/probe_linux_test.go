package link

import (
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gorun/contrib/must"
)

// To look at the way to a peer allocates nothing: on a busy machine every operation does so.
func TestPathProbe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	defer l.Close()
	conn, err := net.Dial("tcp", l.Addr().String())
	must.Do(t, err)
	defer conn.Close()
	peer, err := l.Accept()
	must.Do(t, err)
	defer peer.Close()
	const n = 4711
	if _, err := conn.Write(make([]byte, n)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(peer, make([]byte, n)); err != nil {
		t.Fatal(err)
	}
	var p pathProbe
	p.init(socketOf(conn))
	w := p.state()
	for deadline := time.Now().Add(10 * time.Second); w.delivered < n && time.Now().Before(deadline); w = p.state() {
		time.Sleep(time.Millisecond) // acknowledgements may be late
	}
	if w.delivered < n || w.packet == 0 {
		t.Errorf("a way that carried %d bytes: %+v", n, w)
	}
	if allocated := testing.AllocsPerRun(1000, func() { w = p.state() }); allocated > 0 {
		t.Errorf("%g allocations, of %+v", allocated, w)
	}
	conn.Close()
	if w := p.state(); w != (pathState{}) {
		t.Errorf("a connection that is closed: %+v", w)
	}
}

// TestPathOf: what the kernel tells of a connection, in the states in which it carries nothing.
func TestPathOf(t *testing.T) {
	const mss, open = 8948, 63488
	for name, tc := range map[string]struct {
		info           unix.TCPInfo
		answers, again bool
	}{
		"all was answered":                {unix.TCPInfo{Snd_mss: mss, Snd_wnd: open}, true, false},
		"data is under way":               {unix.TCPInfo{Snd_mss: mss, Snd_wnd: open, Unacked: 3}, false, false},
		"it was sent again":               {unix.TCPInfo{Snd_mss: mss, Snd_wnd: open, Unacked: 3, Retransmits: 2}, false, true},
		"the peer does not read":          {unix.TCPInfo{Snd_mss: mss, Notsent_bytes: 5000, Probes: 1}, true, false},
		"nor does its kernel answer":      {unix.TCPInfo{Snd_mss: mss, Notsent_bytes: 5000, Probes: 3}, false, false},
		"this host drops what it sends":   {unix.TCPInfo{Snd_mss: mss, Snd_wnd: open, Notsent_bytes: 313180}, false, true},
		"so does one of before Linux 5.4": {unix.TCPInfo{Snd_mss: mss, Notsent_bytes: 313180}, true, false},
	} {
		if got := pathOf(&tc.info); got.answers != tc.answers || got.again != tc.again {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

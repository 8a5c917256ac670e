package link_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"gorun/collective/admit/admittest"
	"gorun/collective/link"
	"gorun/contrib/must"
)

func TestWrongKeyOrJobIsRefused(t *testing.T) {
	for name, configure := range map[string]func(*link.Config){
		"key": func(c *link.Config) { c.Key = []byte(strings.Repeat("x", 32)) },
		"job": func(c *link.Config) { c.Job = "another" },
	} {
		t.Run(name, func(t *testing.T) {
			for _, liar := range []int{0, 1} { // as dialer, and as acceptor
				nodes := apart(t, 2, func(c *link.Config) {
					if c.Self == liar {
						configure(c)
					}
				})
				var wg sync.WaitGroup
				for i := range nodes {
					wg.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), patience)
						defer cancel()
						if err := nodes[i].mesh.Connect(ctx, []int{1 - i}); !errors.Is(err, link.ErrKey) {
							t.Errorf("host %d connected: %v", i, err)
						}
					})
				}
				wg.Wait()
				for i, n := range nodes {
					if s := n.status(1 - i); s.Streams != 0 || s.Attached != 0 {
						t.Errorf("host %d has streams: %+v", i, s)
					}
				}
			}
		})
	}
}

func TestWrongHostIsNamed(t *testing.T) {
	nodes := apart(t, 3, nil)
	nodes[0].reach(1, nodes[2].addr())
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := nodes[0].mesh.Connect(ctx, []int{1})
	if err == nil || !strings.Contains(err.Error(), "connect to host 1") || !strings.Contains(err.Error(), "host 2 instead of 1") {
		t.Errorf("got %v", err)
	}
}

func TestConnectNamesWhoIsMissing(t *testing.T) {
	nodes := newNodes(t, 2, nil)
	nodes[0].reach(7, "127.0.0.1:1")
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	err := nodes[0].mesh.Connect(ctx, []int{1, 7})
	if err == nil || !strings.Contains(err.Error(), "host 7") || !strings.Contains(err.Error(), "refused") {
		t.Errorf("got %v", err)
	}
}

// TestHostileKeepNoPeersOut: neither do those who open connections again as they are closed.
func TestHostileKeepNoPeersOut(t *testing.T) {
	nodes := apart(t, 2, func(c *link.Config) { c.HandshakeTimeout = 30 * time.Second })
	for _, n := range nodes {
		admittest.Flood(t, n.addr(), 300, "")
		admittest.Flood(t, n.addr(), 300, "GET / HTTP/1.0\r\n")
	}
	began := time.Now()
	join(t, nodes...)
	if waited := time.Since(began); waited > 10*time.Second {
		t.Errorf("peers waited for %v", waited)
	}
}

func TestUnauthenticatedDoNotKeepPeersOut(t *testing.T) {
	nodes := apart(t, 2, func(c *link.Config) { c.HandshakeTimeout = 100 * time.Millisecond })
	for i := range 12 {
		c, err := net.Dial("tcp", nodes[1].addr())
		must.Do(t, err)
		defer c.Close()
		switch i % 3 {
		case 0: // says nothing
		case 1:
			c.Write([]byte("GET / HTTP/1.0\r\n\r\n" + strings.Repeat("x", 200)))
		case 2:
			c.(*net.TCPConn).CloseWrite()
		}
	}
	join(t, nodes...)
	silent, err := net.Dial("tcp", nodes[1].addr())
	must.Do(t, err)
	defer silent.Close()
	silent.SetReadDeadline(time.Now().Add(patience))
	if n, err := silent.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("a silent stranger read %d bytes, %v", n, err)
	}
}

package network

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"sync"
	"testing"

	"gorun/collective/admit/admittest"
	"gorun/contrib/must"
)

// A client with the secret gets the binary that runs, or what is to be run in its place; no one else gets anything.
func TestRelay(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	open := func(program []byte) *relay {
		r, err := openRelay(ctx, "127.0.0.1", "open sesame", program, "/proc/self/exe")
		must.Do(t, err)
		running.Go(func() { r.run(ctx) })
		return r
	}
	r, other := open(nil), open([]byte("another program"))
	binary, err := os.ReadFile("/proc/self/exe")
	must.Do(t, err)
	ask := func(r *relay, words string) []byte {
		conn, err := net.Dial("tcp", r.listener.Addr().String())
		must.Do(t, err)
		defer conn.Close()
		io.WriteString(conn, words)
		got, _ := io.ReadAll(conn)
		return got
	}
	if got := ask(other, "open sesame\n"); string(got) != "another program" {
		t.Errorf("got %q in the place of another program", got)
	}
	if got := ask(r, "open sesame\n"); !bytes.Equal(got, binary) {
		t.Errorf("got %d bytes, want the %d of this program", len(got), len(binary))
	}
	for _, words := range []string{"open barley\n", "open sesamX\nand more", "\n\n\n\n\n\n\n\n\n\n\n\n"} {
		if got := ask(r, words); len(got) > 0 {
			t.Errorf("%q was given %d bytes", words, len(got))
		}
	}
	cancel()
	running.Wait()
}

// TestHostileGuests: who opens connections again and again keeps no guest out. One that sends nothing does not keep the
// relay from ending.
func TestHostileGuests(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	r, err := openRelay(ctx, "127.0.0.1", "open sesame", []byte("a program"), "")
	must.Do(t, err)
	var running sync.WaitGroup
	running.Go(func() { r.run(ctx) })
	addr := r.listener.Addr().String()
	admittest.Flood(t, addr, 300, "")
	guest, err := net.Dial("tcp", addr)
	must.Do(t, err)
	defer guest.Close()
	io.WriteString(guest, "open sesame\n")
	if got, err := io.ReadAll(guest); string(got) != "a program" || err != nil {
		t.Errorf("a guest got %q, %v", got, err)
	}
	conn, err := net.Dial("tcp", addr)
	must.Do(t, err)
	defer conn.Close()
	cancel()
	running.Wait()
}

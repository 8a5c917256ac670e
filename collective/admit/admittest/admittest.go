// Package admittest attacks listeners, for tests.
package admittest

import (
	"context"
	"io"
	"net"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Flood keeps n connections to an address open until the test ends, and opens each again that is closed. On each it
// sends the text, and nothing more. It returns when all have been opened once.
func Flood(t testing.TB, addr string, n int, text string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running, opened sync.WaitGroup
	sent := []byte(text)
	for range n {
		opened.Add(1)
		running.Go(func() {
			first := sync.OnceFunc(opened.Done)
			defer first()
			for ctx.Err() == nil {
				conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
				first()
				if err != nil {
					continue
				}
				stop := context.AfterFunc(ctx, func() { conn.Close() })
				conn.Write(sent)
				io.Copy(io.Discard, conn)
				stop()
				conn.Close()
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	opened.Wait()
}

// As connects to an address by a socket of another user, which only root can.
func As(t testing.TB, uid int, addr string) net.Conn {
	t.Helper()
	runtime.LockOSThread() // the user for new sockets belongs to the thread
	defer runtime.UnlockOSThread()
	own := syscall.Getuid()
	unix.Setfsuid(uid)
	defer unix.Setfsuid(own)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

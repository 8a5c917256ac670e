// Package admittest attacks listeners, for tests.
package admittest

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
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

package ranks

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"

	"gorun/contrib/must"
	"gorun/rendezvous/wire"
)

// TestPortIsKept: no one else gets a port that is kept for the ranks, and who asks there too early is refused.
func TestPortIsKept(t *testing.T) {
	var p ports
	must.Do(t, p.reserve(&wire.Job{}))
	defer p.release()
	at := fmt.Sprintf("127.0.0.1:%d", p.numbers[0])
	if conn, err := net.Dial("tcp", at); !errors.Is(err, syscall.ECONNREFUSED) {
		if err == nil {
			conn.Close()
		}
		t.Errorf("a connection to it: %v", err)
	}
	if l, err := net.Listen("tcp", at); err == nil {
		l.Close()
		t.Errorf("%s can be had by others", at)
	}
	p.release()
	l, err := net.Listen("tcp", at)
	if err != nil {
		t.Fatalf("after its release: %v", err)
	}
	l.Close()
	p.release() // which is harmless
}

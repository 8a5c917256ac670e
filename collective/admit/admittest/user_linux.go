package admittest

import (
	"net"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// As connects to an address by a socket of another user, which only root can.
func As(t testing.TB, uid int, addr string) net.Conn {
	t.Helper()
	runtime.LockOSThread() // the user for new sockets belongs to the thread
	defer runtime.UnlockOSThread()
	own := os.Getuid()
	unix.Setfsuid(uid)
	defer unix.Setfsuid(own)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

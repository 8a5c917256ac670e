// Package must has tests fail, and ends those that cannot go on.
package must

import (
	"net"
	"os"
	"testing"
	"time"
)

// Do ends the test if there is an error.
func Do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Report has the test fail if there is an error, and go on.
func Report(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// Read returns what is in a file.
func Read(t testing.TB, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	Do(t, err)
	return text
}

// Listen listens at a port of this machine that is free.
func Listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Do(t, err)
	return l
}

// Dial connects to an address by TCP.
func Dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	Do(t, err)
	return conn
}

// Soon waits until ok, and ends the test if that takes two minutes, which even a busy machine with the race detector
// does not need.
func Soon(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not after two minutes: %s", what)
		}
	}
}

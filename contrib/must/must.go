// Package must ends a test that cannot go on.
package must

import (
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

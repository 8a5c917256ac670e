// Package must has tests fail, and ends those that cannot go on.
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

// Report has the test fail if there is an error, and go on.
func Report(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
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

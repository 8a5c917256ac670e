package main

import (
	"os"
	"testing"
)

// TestPrivate: only the owner may read a key, and a group that root has chosen.
func TestPrivate(t *testing.T) {
	for _, tc := range []struct {
		owner, user int
		mode        os.FileMode
		good        bool
	}{
		{1000, 1000, 0o600, true}, {1000, 1000, 0o400, true}, {1000, 1000, 0o440, false}, {0, 0, 0o440, false}, {0, 0, 0o600, true},
		{0, 1000, 0o440, true}, {0, 1000, 0o640, true}, {0, 1000, 0o660, false}, {0, 1000, 0o444, false}, {1001, 1000, 0o440, false},
	} {
		if good := tc.mode&private(tc.owner, tc.user) == 0; good != tc.good {
			t.Errorf("a file of %d with mode %04o, read by %d: good is %v", tc.owner, tc.mode, tc.user, good)
		}
	}
}

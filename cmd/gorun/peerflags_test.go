package main

import (
	"regexp"
	"testing"
)

// TestPeerFlags holds the table of other launchers' flags against gorun's own: none that gorun has is in it, and
// it points to none that gorun has not.
func TestPeerFlags(t *testing.T) {
	flags := new(jobFlags).table()
	mentioned := regexp.MustCompile(`(?:^|[ :;])--?([a-z][a-z-]*)`)
	for name, meant := range peerFlags {
		if findFlag(flags, name) != nil {
			t.Errorf("--%s is a flag of gorun's", name)
		}
		for _, m := range mentioned.FindAllStringSubmatch(meant, -1) {
			if m[1] != "m" && findFlag(flags, m[1]) == nil { // -m is Python's
				t.Errorf("--%s: %q: gorun has no --%s", name, meant, m[1])
			}
		}
	}
}

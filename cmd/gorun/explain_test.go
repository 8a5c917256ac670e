package main

import (
	"errors"
	"strings"
	"testing"

	"gorun/launcher/failure"
)

// TestHalfStarted: the error names hosts that have no daemon when a start is given up, and whether they answered.
func TestHalfStarted(t *testing.T) {
	var said strings.Builder
	code := explain(&said, &failure.HostErrors{Hosts: 3, Silent: []string{"b"}, Late: []string{"c", "d"},
		Failed: []*failure.HostError{{Host: "a", Step: "resolve", Err: errors.New("unknown host a"), Code: 255}}})
	const want = "gorun: error: a: resolve: unknown host a\n    no answer yet from b\n    no daemon yet on c, d\n"
	if code != 255 || said.String() != want {
		t.Errorf("exit code %d and\n%s\nwant 255 and\n%s", code, &said, want)
	}
}

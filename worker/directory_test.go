package worker

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"gorun/rendezvous/wire"
)

// TestDirectory: names are looked up only for peers that may have moved, and say nothing about those that are where they
// were, or that have no name here.
func TestDirectory(t *testing.T) {
	names := map[string][]netip.Addr{
		"host2": {netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.72"), netip.MustParseAddr("127.0.1.1"), netip.MustParseAddr("fd00::72")},
		"host3": {netip.MustParseAddr("10.0.0.3")},
	}
	asked := 0
	d := newDirectory()
	d.resolve = func(_ context.Context, host string) ([]netip.Addr, error) {
		asked++
		if found, ok := names[host]; ok {
			return found, nil
		}
		return nil, errors.New("no such host")
	}
	for id, tc := range map[int]struct {
		name string
		data []string
		want []string
	}{
		2: {"me@host2", []string{"10.0.0.2:700", "10.1.0.2:700"}, []string{"10.0.0.72:700", "[fd00::72]:700"}},
		3: {"host3", []string{"10.0.0.3:700"}, nil},
		4: {"alias", []string{"10.0.0.4:700"}, nil},
		5: {"host2", nil, nil},
	} {
		p := wire.Peer{ID: id, Name: tc.name, Data: tc.data}
		if got := d.elsewhere(t.Context(), p); got != nil {
			t.Errorf("%s is found at %v, and nobody doubts where it is", tc.name, got)
		}
		d.doubt(id, true)
		for range 3 {
			if got := d.elsewhere(t.Context(), p); !slices.Equal(got, tc.want) {
				t.Errorf("%s is found at %v, want %v", tc.name, got, tc.want)
			}
		}
		d.doubt(id, false)
		if got := d.elsewhere(t.Context(), p); got != nil {
			t.Errorf("%s is found at %v after it answered", tc.name, got)
		}
	}
	if asked != 3 {
		t.Errorf("%d names were looked up, want one for each peer that has addresses", asked)
	}
}

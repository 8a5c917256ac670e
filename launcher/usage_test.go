package launcher

import (
	"reflect"
	"testing"

	"gorun/launcher/jobs"
	"gorun/rendezvous/wire"
)

// TestLinksTo: links have the names of their hosts, and the newest of those that lead to one name counts, so that no metric
// is there twice, or shrinks when an old link is forgotten.
func TestLinksTo(t *testing.T) {
	hosts := hostList{{name: "host1"}, {id: 1, name: "host2"}, {id: 2, name: "host3"}, {id: 3, name: "host2"}}
	got := hosts.linksTo([]wire.LinkUsage{
		{Peer: 3, Links: wire.Links{SentBytes: 30, BusyUS: 3}, Queued: 1},
		{Peer: 2, Links: wire.Links{SentBytes: 20, RDMABytes: 20}},
		{Peer: 1, Links: wire.Links{SentBytes: 10, ResentSegments: 2, BusyUS: 4}, Queued: 2},
		{Peer: 4}, {Peer: -1},
	})
	want := []jobs.LinkStatus{
		{To: "host2", Links: wire.Links{SentBytes: 30, BusyUS: 3}, Queued: 1},
		{To: "host3", Links: wire.Links{SentBytes: 20, RDMABytes: 20}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestProgress: the status line of a start.
func TestProgress(t *testing.T) {
	for _, tt := range []struct {
		at   Progress
		want string
	}{
		{Progress{Hosts: 4, Reached: 3, Ready: 2, Ranks: 8}, "gorun: 3/4 hosts reached, 2/4 daemons ready"},
		{Progress{Hosts: 4, Reached: 4, Ready: 4, Started: 1, Ranks: 8}, "gorun: 4/4 daemons ready, 1/8 ranks started"},
		{Progress{Hosts: 4, Reached: 3, Ready: 3, Ranks: 8, Waits: "host2"}, "gorun: 3/4 hosts reached, 3/4 daemons ready, waiting for host2"},
		{Progress{Hosts: 4, Reached: 4, Ready: 4, Started: 7, Ranks: 8, Waits: "host2"}, "gorun: 4/4 daemons ready, 7/8 ranks started, waiting for host2"},
		{Progress{Hosts: 4, Reached: 4, Ready: 4, Started: 8, Ranks: 8}, ""},
	} {
		if got := tt.at.String(); got != tt.want {
			t.Errorf("%+v: %q", tt.at, got)
		}
	}
}

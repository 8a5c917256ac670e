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

package launcher

import (
	"encoding/json"
	"testing"

	"gorun/launcher/elastic"
	"gorun/rendezvous/wire"
)

// TestHungUpAfterTakeOver: a launcher that carries a job on hears as any other does that hosts have ended their connections.
func TestHungUpAfterTakeOver(t *testing.T) {
	spec := &Spec{Elastic: &ElasticSpec{Admit: func(int, string) error { return nil }}}
	members, err := elastic.New(elastic.Config{}).Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	spec.Legacy, err = json.Marshal(legacy{ID: "job", Secret: make([]byte, 32), Processes: []int{0, 1}, Members: members,
		Hosts: []legacyHost{{Name: "a", Slots: 1, Session: "s"}, {Name: "b", Slots: 1, Session: "t", Leaving: true}}})
	if err != nil {
		t.Fatal(err)
	}
	j, err := newJob(spec)
	if err != nil {
		t.Fatal(err)
	}
	defer j.change.tick.Stop()
	a, b := j.hosts[0], j.hosts[1]
	if !a.adopted || a.session != "s" || a.leaving || !b.leaving || b.job.HostID != 1 || b.job.Name != "b" || b.job.ID != "job" || !b.job.Elastic {
		t.Errorf("took over %+v and %+v", a.job, b.job)
	}
	j.handle(event{host: 0, msg: &wire.HungUp{Peer: 1}})
	if !j.partedFrom(b) || j.partedFrom(a) {
		t.Error("it is not known that b has hung up on a")
	}
	j.handle(event{host: 0, msg: &wire.HungUp{Peer: 1, Back: true}})
	if j.partedFrom(b) {
		t.Error("it is not known that b is back")
	}
}

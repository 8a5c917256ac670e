package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/launcher/elastic"
	"gorun/launcher/failure"
	"gorun/launcher/talk"
	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

// TestJobAfterTakeOver: a daemon that has not got its job gets from the next launcher what it would have got from
// the first one.
func TestJobAfterTakeOver(t *testing.T) {
	for _, listed := range []bool{false, true} {
		begin := func(snapshot []byte) *job {
			j, err := newJob(&Spec{Elastic: &ElasticSpec{Policy: elastic.Policy{Listed: listed}}, Snapshot: snapshot})
			must.Do(t, err)
			t.Cleanup(j.membership.tick.Stop)
			return j
		}
		kept := keeper{}
		first := begin(nil)
		first.failover.replicator = &kept
		first.membership.names, first.membership.slots = []string{"a", "b"}, map[string]int{"a": 2, "b": 3}
		first.addHost("a")
		first.addHost("b")
		first.replicate(nil)
		next := begin(kept.snapshot)
		if len(next.hosts) != 2 {
			t.Fatalf("took over %d hosts", len(next.hosts))
		}
		for i, h := range next.hosts {
			if want := first.hosts[i].Job(); !reflect.DeepEqual(h.Job(), want) || h.Job().Open == listed || h.Job().Toward == "" {
				t.Errorf("host %s is told %+v, and was to be told %+v", h.name, h.Job(), want)
			}
		}
	}
}

// TestMoveAfterTakeOver: a host that moves, as was announced to the former launcher, may be silent to the next one for
// as long, also before it has been taken over; not once the move is over, nor for longer than the announcement is
// believed.
func TestMoveAfterTakeOver(t *testing.T) {
	kept := keeper{}
	var asked time.Duration
	dial := adopter(func(silence time.Duration) { asked = silence })
	begin := func(snapshot []byte) *job {
		j, err := newJob(&Spec{Elastic: &ElasticSpec{}, Snapshot: snapshot, Replicator: &kept, Dial: dial})
		must.Do(t, err)
		t.Cleanup(j.membership.tick.Stop)
		return j
	}
	first := begin(nil)
	first.addHost("a")
	first.handle(talk.Event{Host: 0, Msg: &wire.Migrating{State: wire.MoveStarts}})
	next := begin(kept.snapshot)
	adopt := func(j *job) *failure.HostError {
		events := make(chan talk.Event, 1)
		j.hosts[0].Talk(t.Context(), t.Context(), events)
		return (<-events).Err
	}
	if err := adopt(next); err == nil || asked != liveness.Default().MoveLease {
		t.Errorf("it may not answer for %v, %v", asked, err)
	}
	now := time.Now()
	if got := next.alive.Lease(now, 0, next.limits()); got != liveness.Default().MoveLease {
		t.Errorf("it may be silent for %v", got)
	}
	if got := next.alive.Lease(now.Add(liveness.Default().MoveLimit+time.Minute), 0, next.limits()); got != liveness.Default().Lease {
		t.Errorf("long after that was announced it may be silent for %v", got)
	}
	first.handle(talk.Event{Host: 0, Msg: &wire.Migrating{State: wire.MoveEnds}})
	last := begin(kept.snapshot)
	if err := adopt(last); err == nil || last.alive.Lease(now, 0, last.limits()) != liveness.Default().Lease || asked != 0 {
		t.Errorf("after its move it may be silent for %v", last.alive.Lease(now, 0, last.limits()))
	}
}

// adopter takes over no daemon, and hears for how long to look for one.
type adopter func(silence time.Duration)

func (adopter) Dial(context.Context, string) (*talk.Daemon, error) {
	return nil, errors.New("not to be started")
}

func (a adopter) Adopt(_ context.Context, _, _ string, silence time.Duration) (*talk.Daemon, error) {
	a(silence)
	return nil, errors.New("not to be had")
}

// TestTakeOverOfBrokenJob: what a former launcher has left is checked before anything is done with it.
func TestTakeOverOfBrokenJob(t *testing.T) {
	kept := keeper{}
	spec := func() *Spec { return &Spec{Elastic: &ElasticSpec{}, Replicator: &kept} }
	first, err := newJob(spec())
	must.Do(t, err)
	defer first.membership.tick.Stop()
	first.addHost("a")
	first.replicate(nil)
	for want, spoil := range map[string]func(l *snapshot){
		"take over job: it is not elastic, or has no secret": func(l *snapshot) { l.Secret = nil },
		"take over job: process 0 of host id 1":              func(l *snapshot) { l.Processes = []int{1} },
		"take over job: process 7 has ended, of 0":           func(l *snapshot) { l.Exited = []int{7} },
	} {
		var l snapshot
		must.Do(t, json.Unmarshal(kept.snapshot, &l))
		s := spec()
		spoil(&l)
		if s.Snapshot, err = json.Marshal(l); err != nil {
			t.Fatal(err)
		}
		if j, err := newJob(s); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		} else if j != nil {
			j.membership.tick.Stop()
		}
	}
}

// keeper is a Replicator that keeps the last snapshot.
type keeper struct {
	number   uint64
	snapshot []byte
	lease    time.Duration
	// answering is how many of three are there to keep it.
	answering int
}

func (k *keeper) Keep(snapshot []byte, lease time.Duration) uint64 {
	k.number, k.snapshot, k.lease = k.number+1, snapshot, lease
	return k.number
}

func (k *keeper) Kept() <-chan uint64 { return nil }

func (k *keeper) Answering(time.Duration) (of, left int, patience time.Duration) {
	return 3, k.answering, time.Minute
}

// TestActsWaitForSnapshots: what waits for snapshots is done in its order, each act once its own snapshot is safe.
func TestActsWaitForSnapshots(t *testing.T) {
	k := &keeper{}
	f := failover{replicator: k}
	done := ""
	save := func(act string) { f.save(nil, 0, func() { done += act }) }
	save("world ")
	f.save(nil, 0, nil)
	save("spares ")
	for number, want := range []string{"", "world ", "world ", "world spares ", "world spares "} {
		if f.safe(uint64(number)); done != want {
			t.Errorf("with snapshot %d safe %q is done, want %q", number, done, want)
		}
	}
}

// TestHungUpAfterTakeOver: a launcher that carries a job on hears as any other does that hosts have ended their
// connections.
func TestHungUpAfterTakeOver(t *testing.T) {
	spec := &Spec{Elastic: &ElasticSpec{Admit: func(int, string) error { return nil }}}
	members, err := elastic.New(elastic.Config{}).Snapshot()
	must.Do(t, err)
	spec.Snapshot, err = json.Marshal(snapshot{ID: "job", Secret: make([]byte, 32), Processes: []int{0, 1}, Members: members,
		Hosts: []hostSnapshot{{Name: "a", Slots: 1, Session: "s"}, {Name: "b", Slots: 1, Session: "t", Leaving: true}}})
	must.Do(t, err)
	j, err := newJob(spec)
	must.Do(t, err)
	defer j.membership.tick.Stop()
	a, b := j.hosts[0], j.hosts[1]
	if !a.adopted || a.session != "s" || a.leaving || !b.leaving || b.Job().HostID != 1 || b.Job().Name != "b" || b.Job().ID != "job" || !b.Job().Elastic {
		t.Errorf("took over %+v and %+v", a.Job(), b.Job())
	}
}

// takenOver returns the job of a launcher that takes over from one whose policy has taken some events.
func takenOver(t *testing.T, policy elastic.Policy, hosts []elastic.DiscoveredHost, events ...elastic.Event) *job {
	t.Helper()
	former := elastic.New(elastic.Config{Policy: policy})
	for _, ev := range append([]elastic.Event{elastic.Discovered{Hosts: hosts}}, events...) {
		former.Step(0, ev)
	}
	snap := snapshot{ID: "job", Secret: make([]byte, 32)}
	for _, p := range former.World() {
		snap.Processes = append(snap.Processes, p.Host)
	}
	snap.Processes = append(snap.Processes, len(hosts)-1) // a spare
	for _, h := range hosts {
		snap.Hosts = append(snap.Hosts, hostSnapshot{Name: h.Name, Slots: h.Slots, Session: h.Name})
	}
	var err error
	snap.Members, err = former.Snapshot()
	must.Do(t, err)
	spec := &Spec{Elastic: &ElasticSpec{Policy: policy, Admit: func(int, string) error { return nil }}, Programs: []Program{{}},
		Note: func(string, ...any) {}}
	spec.Snapshot, err = json.Marshal(snap)
	must.Do(t, err)
	j, err := newJob(spec)
	must.Do(t, err)
	t.Cleanup(j.membership.tick.Stop)
	return j
}

// told takes what a host is about to be sent, and names the spares of each message.
func told(h *host) (said string) {
	msgs, _ := h.Queue.Take()
	for _, m := range msgs {
		said += fmt.Sprintf("%T", m)
		var spares []wire.Rank
		switch m := m.(type) {
		case *wire.Roster:
			said, spares = said+fmt.Sprint(" ", m.Epoch), m.Spares
		case *wire.Spares:
			said, spares = said+fmt.Sprint(" ", m.Epoch), m.Ranks
		}
		for _, s := range spares {
			said += fmt.Sprint(" spare ", s.Process)
		}
		said += "; "
	}
	return said
}

// TestSparesAfterTakeOver: a launcher that carries a job on tells the hosts of spares again, once all have reported their state,
// and begins another world if a member does not know the last one: the former launcher may have been lost before it told them.
// Host b still knows the world before, in which it runs the spare: the roster that it gets has the spare, too, or would end it.
func TestSparesAfterTakeOver(t *testing.T) {
	hosts := []elastic.DiscoveredHost{{Name: "a", Slots: 1}, {Name: "b", Slots: 1}}
	j := takenOver(t, elastic.Policy{NP: 1, MinNP: 1, MaxNP: 1, Spares: 1, ResetLimit: -1}, hosts, elastic.HostUp{Host: 0},
		elastic.HostUp{Host: 1}, elastic.Committed{Host: 0, Epoch: 1}, elastic.Started{Process: 1},
		elastic.Interrupted{Why: "a link failed"}, elastic.Tick{})
	a, b := j.hosts[0], j.hosts[1]
	for _, tc := range []struct {
		from     *host
		knows    uint32 // the last roster that it got
		onA, onB string
	}{{b, 1, "", ""}, {a, 2, "*wire.Spares 2; ", "*wire.Roster 2 spare 1; *wire.Spares 2 spare 1; "}, {a, 2, "", ""}} {
		tc.from.ready = &wire.Ready{}
		j.message(tc.from, &wire.Account{HasJob: true, Epoch: tc.knows})
		j.decide(elastic.Tick{})
		if onA, onB := told(a), told(b); onA != tc.onA || onB != tc.onB {
			t.Errorf("after the account of %s a hears %q, and b, which has the spare, %q", tc.from.name, onA, onB)
		}
	}
	j.message(a, &wire.Account{HasJob: true, Epoch: 1})
	j.message(a, &wire.Account{HasJob: true, Epoch: 1}) // it did not know the last roster, and the next one is under way
	if j.membership.epoch != 3 {
		t.Errorf("in epoch %d, want 3: a did not know the world of epoch 2", j.membership.epoch)
	}
}

// TestDismissedSparesAfterTakeOver: a launcher that carries a job on tells hosts again of the spares that the former one has let
// go: it may have been lost before it told them.
func TestDismissedSparesAfterTakeOver(t *testing.T) {
	hosts := []elastic.DiscoveredHost{{Name: "a", Slots: 2}}
	j := takenOver(t, elastic.Policy{NP: 1, MinNP: 1, MaxNP: 1, Spares: 1, ResetLimit: -1}, hosts, elastic.HostUp{Host: 0},
		elastic.Committed{Host: 0, Epoch: 1}, elastic.Started{Process: 1},
		elastic.Discovered{Hosts: []elastic.DiscoveredHost{{Name: "a", Slots: 1}}})
	a := j.hosts[0]
	a.ready = &wire.Ready{}
	for _, want := range []string{"*wire.Spares 1; ", ""} {
		j.decide(elastic.Tick{})
		if got := told(a); got != want {
			t.Errorf("a, which runs the spare, hears %q, want %q", got, want)
		}
	}
}

// TestLeaseOfLauncher: the launcher may be silent for as long as its hosts may, which is longer once one has vGPUs.
func TestLeaseOfLauncher(t *testing.T) {
	k := &keeper{}
	j, err := newJob(&Spec{Elastic: &ElasticSpec{}, Replicator: k})
	must.Do(t, err)
	defer j.membership.tick.Stop()
	if j.replicate(nil); k.lease != liveness.Default().Lease {
		t.Errorf("lease %v", k.lease)
	}
	j.addHost("a").ready = &wire.Ready{Host: topology.Host{GPUs: []topology.GPU{{Mode: "vgpu"}}}}
	if j.replicate(nil); k.lease != liveness.Default().MoveLease {
		t.Errorf("lease %v with a vGPU", k.lease)
	}
}

// TestMinority: a launcher announces no world that too few hosts know to carry it on, and waits for them for a while
// only.
func TestMinority(t *testing.T) {
	var notes []string
	worlds := 0
	k := &keeper{answering: 2}
	j, err := newJob(&Spec{Replicator: k, Note: func(format string, args ...any) { notes = append(notes, fmt.Sprintf(format, args...)) },
		Elastic: &ElasticSpec{Admit: func(int, string) error { return nil }, World: func(int, []string) { worlds++ }}})
	must.Do(t, err)
	defer j.membership.tick.Stop()
	j.addHost("a").ready = &wire.Ready{}
	began := time.Now()
	pass := func(from, to time.Duration) {
		for at := from; at < to; at += liveness.Default().LookInterval {
			j.checkElectors(began.Add(at))
		}
	}
	world := elastic.Roster{Epoch: 2, Reason: "b was lost", Places: []elastic.ProcessPlace{{Process: 0, Host: 0}}}
	j.enter(world)
	pass(0, time.Hour)
	if notes != nil || worlds != 0 || j.stopping {
		t.Fatalf("before a majority has kept the world, which answers: %q, %d worlds, stopping %v", notes, worlds, j.stopping)
	}
	k.answering = 1
	const wait = "gorun: too few hosts answer to elect the job's launcher (1 of 3): nothing changes until more do; otherwise the job ends in 1m0s"
	pass(time.Hour, time.Hour+time.Minute-time.Second)
	if !slices.Equal(notes, []string{wait}) || worlds != 0 || j.stopping {
		t.Fatalf("in a minority: %q, %d worlds, stopping %v", notes, worlds, j.stopping)
	}
	j.checkElectors(began.Add(2 * time.Hour)) // it stood still
	if j.stopping {
		t.Fatal("who stood still has not waited")
	}
	k.answering = 2
	j.checkElectors(began.Add(2 * time.Hour))
	k.answering = 1
	pass(2*time.Hour, 2*time.Hour+time.Minute-time.Second)
	if j.stopping {
		t.Fatal("a majority answered meanwhile")
	}
	pass(2*time.Hour+time.Minute-time.Second, 2*time.Hour+time.Minute+time.Second)
	if lost, ok := errors.AsType[*failure.MinorityError](j.verdict); !j.stopping || !ok || *lost != (failure.MinorityError{Of: 3, Left: 1}) || worlds != 0 {
		t.Fatalf("after %v in a minority: stopping %v, verdict %v, %d worlds", time.Minute, j.stopping, j.verdict, worlds)
	}

	// Kept after all, it is announced, and no one waits.
	j.stopping, j.verdict, notes = false, nil, nil
	j.failover.safe(1)
	pass(3*time.Hour, 4*time.Hour)
	if want := []string{"gorun: epoch 2: 1 rank on 1 host, because b was lost"}; !slices.Equal(notes, want) || worlds != 1 || j.stopping {
		t.Errorf("once it was kept: %q, %d worlds, stopping %v", notes, worlds, j.stopping)
	}
}

package elastic_test

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"gorun/contrib/must"
	e "gorun/launcher/elastic"
)

// job drives a machine and writes its actions in a short form: process@host.slot for a place.
type job struct {
	*testing.T
	m   *e.Machine
	now time.Duration
}

func newJob(t *testing.T, cfg e.Config) *job {
	t.Helper()
	p, err := cfg.Check()
	must.Do(t, err)
	cfg.Policy = p
	return &job{T: t, m: e.New(cfg)}
}

// expect takes events and compares what follows the last of them; "" for nothing. That the user hears of a loss is for
// TestLossesAreReported.
func (j *job) expect(want string, events ...e.Event) {
	j.Helper()
	var got []string
	for i, ev := range events {
		for _, a := range j.m.Step(j.now, ev) {
			switch a.(type) {
			case e.GoesOnWithout, e.ProcessLost:
				continue
			}
			if i == len(events)-1 {
				got = append(got, short(a))
			}
		}
	}
	if s := strings.Join(got, "; "); s != want {
		j.Fatalf("after %T%v:\n got %s\nwant %s", events[len(events)-1], events[len(events)-1], s, want)
	}
}

func short(a e.Action) string {
	switch a := a.(type) {
	case e.StartHost:
		return fmt.Sprintf("start %d %s", a.Host, a.Name)
	case e.DropHost:
		return fmt.Sprintf("drop %d", a.Host)
	case e.Roster:
		var places []string
		for _, p := range a.Places {
			places = append(places, fmt.Sprintf("%d@%d.%d", p.Process, p.Host, p.Slot))
		}
		return fmt.Sprintf("epoch %d: %s%s", a.Epoch, strings.Join(places, " "), waiting(a.Spares))
	case e.Spares:
		return cmp.Or(strings.TrimPrefix(waiting(a.Places), ", "), "no spare")
	case e.HangUp:
		return fmt.Sprintf("hang up on %d", a.Host)
	case e.Form:
		return fmt.Sprintf("form %d", a.Epoch)
	case e.StartLate:
		return "late"
	case e.HostsChanged:
		return fmt.Sprintf("news %d added=%v removed=%v", a.Stamp, a.Added, a.Removed)
	case e.End:
		return fmt.Sprintf("end %v process=%d host=%d code=%d: %s", a.Cause, a.Process, a.Host, a.Code, a.Why)
	case e.Note:
		return "note"
	}
	return "?"
}

func waiting(spares []e.ProcessPlace) (text string) {
	for i, p := range spares {
		if i == 0 {
			text = ", spare"
		}
		text += fmt.Sprintf(" %d@%d.%d", p.Process, p.Host, p.Slot)
	}
	return text
}

func hosts(names string, slots int) e.Discovered {
	var d e.Discovered
	for _, n := range strings.Fields(names) {
		d.Hosts = append(d.Hosts, e.DiscoveredHost{Name: n, Slots: slots})
	}
	return d
}

func TestFixedJob(t *testing.T) {
	start := func() *job {
		j := newJob(t, e.Config{Policy: e.Fixed(4), Ranks: []int{0, 1, 0, 1}})
		j.expect("start 0 a; start 1 b", hosts("a b", 2))
		j.expect("", e.HostUp{Host: 1})
		j.expect("epoch 1: 0@0.0 1@1.0 2@0.1 3@1.1", e.HostUp{Host: 0})
		j.expect("", e.Committed{Host: 0, Epoch: 1}, e.Committed{Host: 1, Epoch: 1})
		return j
	}
	t.Run("init after shutdown", func(t *testing.T) {
		j := start()
		for epoch := uint32(1); epoch < 20; epoch++ {
			for p := range 3 {
				j.expect("", e.Rejoining{Process: p, Epoch: epoch})
			}
			j.expect(fmt.Sprintf("epoch %d: 0@0.0 1@1.0 2@0.1 3@1.1", epoch+1), e.Rejoining{Process: 3, Epoch: epoch})
			j.expect("", e.Committed{Host: 1, Epoch: epoch + 1})
		}
	})
	t.Run("exit 0 is no end for the others", func(t *testing.T) {
		j := start()
		for p := range 3 {
			j.expect("", e.Exited{Process: p})
		}
		j.expect("end finished process=-1 host=-1 code=0: ", e.Exited{Process: 3})
		j.expect("", e.Exited{Process: 3, Code: 1}, e.Tick{})
	})
	t.Run("the first failure ends it", func(t *testing.T) {
		start().expect("end process failed process=2 host=0 code=9: process 2 on a exited with code 9", e.Exited{Process: 2, Code: 9})
		start().expect("end host failed process=-1 host=1 code=0: host b was lost: no word", e.HostLost{Host: 1, Reason: "no word"})
	})
	t.Run("a host does not start", func(t *testing.T) {
		j := newJob(t, e.Config{Policy: e.Fixed(4)})
		j.expect("", hosts("a b", 2), e.HostLost{Host: 1, Reason: "no route"})
		j.expect("end host failed process=-1 host=1 code=0: host b was lost: no route", e.HostUp{Host: 0})
	})
}

// elasticJob is two hosts with two slots each, and one spare host if there is room for it.
func elasticJob(t *testing.T, p e.Policy) *job {
	t.Helper()
	j := newJob(t, e.Config{Policy: p})
	j.expect("start 0 a; start 1 b", hosts("a b", 2))
	j.expect("", e.HostUp{Host: 0})
	j.expect("epoch 1: 0@0.0 1@0.1 2@1.0 3@1.1", e.HostUp{Host: 1})
	j.expect("", e.Committed{Host: 0, Epoch: 1})
	return j
}

func TestOnFailure(t *testing.T) {
	policy := func(o e.OnFailure) e.Policy {
		return e.Policy{NP: 4, MinNP: 2, MaxNP: 4, OnFailure: o, ResetLimit: -1, Timeout: time.Minute}
	}
	spare := func(j *job) {
		j.expect("start 2 c", hosts("a b c", 2))
		j.expect("", e.HostUp{Host: 2}) // warm, without a process
	}
	t.Run("replace", func(t *testing.T) {
		j := elasticJob(t, policy(e.Replace))
		spare(j)
		j.expect("epoch 2: 1@0.1 2@1.0 3@1.1 4@2.0", e.Exited{Process: 0, Code: 1})
		j.expect("note; epoch 3: 1@0.1 4@2.0 5@2.1", e.HostLost{Host: 1, Reason: "no word"})
	})
	t.Run("shrink", func(t *testing.T) {
		j := elasticJob(t, policy(e.Shrink))
		spare(j)
		j.expect("epoch 2: 0@0.0 1@0.1 3@1.1", e.Exited{Process: 2, Code: 1})
		j.expect("news 1 added=true removed=false", e.Committed{Host: 0, Epoch: 2})
		j.expect("", e.Rejoining{Process: 0, Epoch: 2}, e.Rejoining{Process: 1, Epoch: 2})
		j.expect("epoch 3: 0@0.0 1@0.1 3@1.1 4@2.0", e.Rejoining{Process: 3, Epoch: 2})
	})
	t.Run("wait", func(t *testing.T) {
		j := elasticJob(t, policy(e.Wait))
		j.expect("note; note", e.HostLost{Host: 0, Reason: "no word"})
		j.now = 30 * time.Second
		j.expect("start 2 c", hosts("b c", 2))
		j.expect("epoch 2: 2@1.0 3@1.1 4@2.0 5@2.1", e.HostUp{Host: 2})
		j.expect("note", e.Exited{Process: 2, Code: 1})
		j.now += time.Minute
		j.expect("epoch 3: 3@1.1 4@2.0 5@2.1", e.Tick{})
	})
	t.Run("fewer than min-np wait and then go on", func(t *testing.T) {
		j := elasticJob(t, policy(e.Replace))
		j.expect("note; epoch 2: 2@1.0 3@1.1", e.HostLost{Host: 0, Reason: "no word"})
		j.expect("note", e.Exited{Process: 3, Code: 1})
		j.expect("start 2 c", hosts("b c", 2))
		j.expect("epoch 3: 2@1.0 4@2.0 5@2.1", e.HostUp{Host: 2})
	})
	t.Run("fewer than min-np for too long", func(t *testing.T) {
		j := elasticJob(t, policy(e.Replace))
		j.expect("note", e.HostLost{Host: 0, Reason: "no word"}, e.Exited{Process: 3, Code: 7})
		j.now = 59 * time.Second
		j.expect("start 2 a", e.Tick{})
		j.now = time.Minute
		j.expect("end too few process=-1 host=0 code=0: too few slots: 2 needed, 1 there after 1m0s, after host a was lost: no word", e.Tick{})
	})
	t.Run("a list that never changes is not waited for", func(t *testing.T) {
		p := policy(e.Replace)
		p.Listed = true
		j := elasticJob(t, p)
		j.expect("end too few process=0 host=0 code=7: too few slots: 2 needed, 1 can be used, after process 0 on a exited with code 7",
			e.Exited{Process: 0, Code: 7}, e.Exited{Process: 1, Code: 7}, e.Exited{Process: 3, Code: 7})
	})
	t.Run("but a host of it that was lost is", func(t *testing.T) {
		p := policy(e.Replace)
		p.Listed = true
		j := elasticJob(t, p)
		j.expect("note", e.HostLost{Host: 0, Reason: "no word"}, e.Exited{Process: 3, Code: 7})
		j.now = time.Second
		j.expect("start 2 a", e.Tick{})
		j.expect("epoch 3: 2@1.0 4@2.0 5@2.1", e.HostUp{Host: 2})
	})
	t.Run("no process is left, and no slot in which none has failed", func(t *testing.T) {
		j := elasticJob(t, policy(e.Replace))
		j.expect("end process failed process=2 host=1 code=7: process 2 on b exited with code 7",
			hosts("b", 2), e.HostLost{Host: 0, Reason: "no word"}, e.Committed{Host: 1, Epoch: 2}, e.Exited{Process: 2, Code: 7}, e.Exited{Process: 3, Code: 8})
	})
	t.Run("a process that fails after a host fell silent is a victim", func(t *testing.T) {
		for _, tc := range []struct {
			code   int
			silent time.Duration
			again  bool
		}{{134, 4 * time.Second, true}, {134, 2 * time.Second, false}, {137, 4 * time.Second, false}} {
			j := elasticJob(t, policy(e.Replace))
			j.now = time.Minute
			j.expect("epoch 2: 0@0.0 1@0.1 3@1.1", e.Exited{Process: 2, Code: tc.code})
			j.now += 3 * time.Second
			lost := e.HostLost{Host: 0, Reason: "no word", Silent: tc.silent}
			if tc.again {
				j.expect("note; note; epoch 3: 3@1.1 4@1.0", lost)
			} else {
				j.expect("note; note", lost) // it failed before that, or something killed it
			}
		}
	})
	t.Run("reset limit", func(t *testing.T) {
		p := policy(e.Replace)
		p.ResetLimit = 1
		j := elasticJob(t, p)
		j.expect("end too many resets process=1 host=0 code=3: the reset limit of 1 is reached: process 1 on a exited with code 3",
			e.Exited{Process: 0, Code: 1}, e.Committed{Host: 0, Epoch: 2}, e.Exited{Process: 1, Code: 3})
	})
}

func TestDiscovery(t *testing.T) {
	policy := e.Policy{NP: 4, MinNP: 1, ResetLimit: -1}
	rejoin := func(j *job, epoch uint32, want string, processes ...int) {
		j.Helper()
		var events []e.Event
		for _, p := range processes {
			events = append(events, e.Rejoining{Process: p, Epoch: epoch})
		}
		j.expect(want, events...)
	}
	t.Run("grow and shrink at the next commit", func(t *testing.T) {
		j := elasticJob(t, policy)
		j.expect("start 2 c", hosts("a b c", 2))
		j.expect("news 1 added=true removed=false", e.HostUp{Host: 2})
		j.expect("", e.Tick{})
		rejoin(j, 1, "epoch 2: 0@0.0 1@0.1 2@1.0 3@1.1 4@2.0 5@2.1", 0, 1, 2, 3)
		rejoin(j, 1, "", 0, 1, 2, 3) // reported again, it is still about the old world
		j.expect("", hosts("b c", 2))
		j.expect("news 2 added=false removed=true", e.Committed{Host: 0, Epoch: 2})
		rejoin(j, 2, "epoch 3: 2@1.0 3@1.1 4@2.0 5@2.1; drop 0", 0, 1, 2, 3, 4, 5)
		j.expect("", e.Exited{Process: 0, Code: 143}, e.HostLost{Host: 0, Reason: "asked"})
		j.expect("start 3 a", hosts("a b c", 2))
	})
	t.Run("the last hosts stay until others have the state", func(t *testing.T) {
		j := elasticJob(t, policy)
		j.expect("", hosts("", 2))
		j.expect("start 2 c", hosts("c", 2))
		j.expect("news 1 added=true removed=true", e.HostUp{Host: 2})
		rejoin(j, 1, "epoch 2: 0@0.0 4@2.0 5@2.1; drop 1", 0, 1, 2, 3)
		j.expect("news 2 added=false removed=true", e.Committed{Host: 2, Epoch: 2})
		rejoin(j, 2, "epoch 3: 4@2.0 5@2.1; drop 0", 0, 4, 5)
	})
	t.Run("a failure amid that does not take the state along", func(t *testing.T) {
		j := elasticJob(t, policy)
		j.expect("", hosts("", 2))
		j.expect("start 2 c", hosts("c", 2))
		j.expect("news 1 added=true removed=true", e.HostUp{Host: 2})
		rejoin(j, 1, "epoch 2: 0@0.0 4@2.0 5@2.1; drop 1", 0, 1, 2, 3)
		j.expect("epoch 3: 0@0.0 5@2.1", e.Exited{Process: 4, Code: 137}) // 5 may be dead as well, and has no state
		j.expect("news 2 added=false removed=true", e.Committed{Host: 2, Epoch: 3})
		rejoin(j, 3, "epoch 4: 5@2.1; drop 0", 0, 5)
	})
	t.Run("a host that goes before the processes have reacted", func(t *testing.T) {
		j := elasticJob(t, policy)
		j.expect("news 1 added=true removed=false", hosts("a b c", 2), e.HostUp{Host: 2})
		j.expect("drop 2", hosts("a b", 2))
		rejoin(j, 1, "epoch 2: 0@0.0 1@0.1 2@1.0 3@1.1", 0, 1, 2, 3)
	})
	t.Run("what failed cools down", func(t *testing.T) {
		p := policy
		p.CooldownMin, p.CooldownMax = 10*time.Second, 35*time.Second
		j := elasticJob(t, p)
		for i, cooldown := range []time.Duration{10, 20, 35, 35} {
			epoch, last := uint32(2*i+2), 3+i
			j.expect(fmt.Sprintf("epoch %d: 0@0.0 1@0.1 2@1.0", epoch), e.Exited{Process: last, Code: 1})
			j.expect("", e.Committed{Host: 0, Epoch: epoch})
			j.now += cooldown*time.Second - 1
			j.expect("", e.Tick{})
			j.now++
			j.expect(fmt.Sprintf("news %d added=true removed=false", i+1), e.Tick{})
			rejoin(j, epoch, fmt.Sprintf("epoch %d: 0@0.0 1@0.1 2@1.0 %d@1.1", epoch+1, last+1), 0, 1, 2)
		}
		j.expect("note; epoch 10: 2@1.0 7@1.1", e.HostLost{Host: 0, Reason: "rebooted"})
		j.now += 10 * time.Second
		j.expect("start 2 a", e.Tick{})
	})
	t.Run("nothing is started when a process has finished", func(t *testing.T) {
		j := elasticJob(t, policy)
		j.expect("", e.Exited{Process: 0}, hosts("a b c", 2), e.Tick{})
		j.expect("epoch 2: 1@0.1 3@1.1", e.Exited{Process: 2, Code: 1})
		j.expect("end finished process=-1 host=-1 code=0: ", e.Exited{Process: 3}, e.Exited{Process: 1})
	})
	t.Run("a first world waits for its hosts", func(t *testing.T) {
		j := newJob(t, e.Config{Policy: e.Policy{NP: 2, MinNP: 1, ResetLimit: -1, Timeout: time.Minute}})
		j.expect("", hosts("a b", 2), e.HostUp{Host: 1})
		j.now = 3 * time.Second
		j.expect("epoch 1: 0@1.0 1@1.1", e.Tick{})
		j.expect("", e.HostUp{Host: 0})
		j.expect("news 1 added=true removed=false", e.Committed{Host: 1, Epoch: 1})
		j = newJob(t, e.Config{Policy: e.Policy{NP: 2, MinNP: 1, ResetLimit: -1, Timeout: time.Minute}})
		j.expect("", hosts("a", 1), e.HostUp{Host: 0})
		j.now = time.Minute
		j.expect("end too few process=-1 host=-1 code=0: too few slots: 2 needed, 1 there after 1m0s", e.Tick{})
	})
}

func TestPlaces(t *testing.T) {
	j := newJob(t, e.Config{Policy: e.Policy{NP: 3, ResetLimit: -1}})
	j.m.Step(0, e.Discovered{Hosts: []e.DiscoveredHost{{Name: "a", Slots: 2}, {Name: "b", Slots: 1}}})
	j.m.Step(0, e.HostUp{Host: 0})
	got := j.m.Step(0, e.HostUp{Host: 1})[0].(e.Roster)
	want := []e.ProcessPlace{ // horovod's documentation has this example
		{Process: 0, Rank: 0, LocalRank: 0, CrossRank: 0, CrossSize: 2, Host: 0, Slot: 0, New: true},
		{Process: 1, Rank: 1, LocalRank: 1, CrossRank: 0, CrossSize: 1, Host: 0, Slot: 1, New: true},
		{Process: 2, Rank: 2, LocalRank: 0, CrossRank: 1, CrossSize: 2, Host: 1, Slot: 0, New: true},
	}
	if fmt.Sprint(got.Places) != fmt.Sprint(want) {
		t.Errorf("got  %+v\nwant %+v", got.Places, want)
	}
	if ids := got.Hosts(); fmt.Sprint(ids) != "[0 1]" {
		t.Errorf("hosts %v", ids)
	}
	// A wrong report of a daemon changes nothing.
	for _, ev := range []e.Event{e.HostUp{Host: 9}, e.HostUp{Host: -1}, e.HostLost{Host: 7}, e.Exited{Process: -1},
		e.Rejoining{Process: 0, Epoch: 5}, e.Rejoining{Process: 8, Epoch: 1}, e.Committed{Host: 4, Epoch: 1}} {
		j.expect("", ev)
	}
	j.expect("", e.Rejoining{Process: 1, Epoch: 1}, e.Rejoining{Process: 2, Epoch: 1}) // 0 has not really left
}

func TestPolicy(t *testing.T) {
	for _, tc := range []struct {
		policy e.Policy
		want   string
	}{
		{e.Policy{NP: 2, MinNP: 3}, "--min-np 3 exceeds -np 2"},
		{e.Policy{NP: 2, MaxNP: 1}, "--max-np 1 is less than -np 2"},
	} {
		if _, err := tc.policy.Check(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: %v, want %q", tc.policy, err, tc.want)
		}
	}
	p, err := e.Policy{MinNP: 2}.Check()
	if err != nil || p.NP != 2 || p.Timeout != e.DefaultTimeout || p.LossLimit != e.DefaultLossLimit {
		t.Errorf("%+v, %v", p, err)
	}
	for _, s := range []string{"shrink", "replace", "wait"} {
		if o, err := e.ParseOnFailure(s); err != nil || o.String() != s {
			t.Errorf("%s: %v, %v", s, o, err)
		}
	}
	for _, s := range []string{"slot", "host"} {
		if b, err := e.ParseBlacklist(s); err != nil || b.String() != s {
			t.Errorf("%s: %v, %v", s, b, err)
		}
	}
	if _, err := e.ParseOnFailure("end"); err == nil {
		t.Error("end is not for users")
	}
}

// TestReboot: a host that was lost is used again when it comes back as another one, even if it was never withdrawn,
// and even if its loss is noticed only then.
func TestReboot(t *testing.T) {
	was := e.Discovered{Hosts: []e.DiscoveredHost{{Name: "a", Slots: 1, Born: 1}, {Name: "b", Slots: 1, Born: 1}}}
	is := e.Discovered{Hosts: []e.DiscoveredHost{{Name: "a", Slots: 1, Born: 1}, {Name: "b", Slots: 1, Born: 2}}}
	for name, events := range map[string][]e.Event{
		"noticed first": {e.HostLost{Host: 1, Reason: "off"}, is},
		"noticed late":  {is, e.HostLost{Host: 1, Reason: "off"}},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJob(t, e.Config{Policy: e.Policy{NP: 2, MinNP: 1, ResetLimit: -1}})
			j.expect("epoch 1: 0@0.0 1@1.0", was, e.HostUp{Host: 0}, e.HostUp{Host: 1})
			j.expect("", e.Committed{Host: 0, Epoch: 1}, e.Committed{Host: 1, Epoch: 1})
			var started, went bool
			for _, ev := range events {
				for _, a := range j.m.Step(j.now, ev) {
					switch a := a.(type) {
					case e.StartHost:
						started = a.Host == 2 && a.Name == "b"
					case e.Roster:
						went = len(a.Places) == 1
					}
				}
			}
			if !started || !went {
				t.Fatalf("the host was started again: %v, the others went on: %v", started, went)
			}
			j.expect("", e.Committed{Host: 0, Epoch: 2})
			j.expect("news 1 added=true removed=false", e.HostUp{Host: 2})
			j.expect("note", e.HostLost{Host: 2, Reason: "off"}) // the same one is not tried again
		})
	}
}

// TestReason looks at what users read about a new world where nothing failed.
func TestReason(t *testing.T) {
	j := elasticJob(t, e.Policy{NP: 4, MinNP: 2, ResetLimit: -1, Timeout: time.Minute})
	step := func(events ...e.Event) (reason string) {
		for _, ev := range events {
			for _, a := range j.m.Step(j.now, ev) {
				if r, ok := a.(e.Roster); ok {
					reason = r.Reason
				}
			}
		}
		return reason
	}
	leave := func(epoch uint32, processes ...int) (reason string) {
		for _, p := range processes {
			reason = step(e.Rejoining{Process: p, Epoch: epoch})
		}
		for host := range 4 {
			step(e.Committed{Host: host, Epoch: epoch + 1})
		}
		return reason
	}
	for i, tt := range []struct {
		events    []e.Event
		processes []int
		want      string
	}{
		{nil, []int{0, 1, 2, 3}, "every process asked for another world"},
		{[]e.Event{hosts("a b c", 1), hosts("a b c", 2), e.HostUp{Host: 2}}, []int{0, 1, 2, 3}, "c joined"},
		{[]e.Event{hosts("a b c", 3)}, []int{0, 1, 2, 3, 4, 5}, "a, b, c gained slots"},
		{[]e.Event{hosts("a b c", 2)}, []int{0, 1, 2, 3, 4, 5, 6, 7, 8}, "a, b, c lost slots"},
		{[]e.Event{hosts("b c", 2)}, []int{0, 1, 2, 3, 4, 5}, "a left"},
	} {
		step(tt.events...)
		if got := leave(uint32(i+1), tt.processes...); got != tt.want {
			t.Errorf("world %d: because %s, want %s", i+2, got, tt.want)
		}
	}

	j = elasticJob(t, e.Policy{NP: 4, MinNP: 2, ResetLimit: -1, Timeout: time.Minute})
	step(e.Rejoining{Process: 3, Epoch: 1}, e.Rejoining{Process: 2, Epoch: 1, Why: "allreduce \"x\": the shapes differ"},
		e.Rejoining{Process: 2, Epoch: 1, Why: "said again"}, e.Rejoining{Process: 1, Epoch: 1, Why: "process 2 has left"})
	if got, want := leave(1, 0), "every process asked for another world, process 2 after an error: allreduce \"x\": the shapes differ"; got != want {
		t.Errorf("because %s, want %s", got, want)
	}
	if got, want := leave(2, 0, 1, 2, 3), "every process asked for another world"; got != want {
		t.Errorf("because %s, want %s: the error was in the world before", got, want)
	}
}

// TestInterrupted: a world that cannot go on is followed by one with the same members.
func TestInterrupted(t *testing.T) {
	j := elasticJob(t, e.Policy{NP: 2, MinNP: 1, ResetLimit: -1})
	m, _, err := e.Restore(e.Config{Policy: e.Policy{NP: 2, MinNP: 1, ResetLimit: -1, Timeout: time.Minute}}, snapshotOf(t, j.m))
	must.Do(t, err)
	for _, m := range []*e.Machine{j.m, m} {
		var got []e.Action
		for _, a := range m.Step(time.Minute, e.Interrupted{Why: "a roster was lost"}) {
			if r, ok := a.(e.Roster); ok {
				got = append(got, r)
			}
		}
		if len(got) != 1 || got[0].(e.Roster).Reason != "a roster was lost" {
			t.Errorf("%+v", got)
		}
	}
	for text, want := range map[string]string{"": "unexpected end", "{}x": "invalid character", `{"daemons":[{"site":1}]}`: "a daemon without a host",
		`{"processes":[{"host":0}]}`: "a process without a daemon", `{"world":[0]}`: "a rank without a process",
		`{"sites":[{"failed":{"0":null}}]}`: "a slot without its failures",
		`{"daemons":[null]}`:                "a host, a daemon or a process without its state"} {
		if _, _, err := e.Restore(e.Config{}, []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q was read: %v, want %s", text, err, want)
		}
	}
}

func snapshotOf(t *testing.T, m *e.Machine) []byte {
	t.Helper()
	text, err := m.Snapshot()
	must.Do(t, err)
	return text
}

// TestListedTooEarly: a host that is listed before it can be reached is tried again, ever more rarely, for it has
// failed nothing, and the more rarely if it is there, or does not let us in; all of these tries have one id, of which
// no one has heard. One line reports that. A list that never changes is treated alike.
func TestListedTooEarly(t *testing.T) {
	for _, p := range []e.Policy{{NP: 1, ResetLimit: -1}, {NP: 1, ResetLimit: -1, Listed: true}, {NP: 1, ResetLimit: -1, CooldownMin: time.Hour, CooldownMax: time.Hour}} {
		for _, tc := range []struct {
			lost        e.HostLost
			first, most time.Duration
		}{
			{e.HostLost{}, time.Second, 8 * time.Second},
			{e.HostLost{Alive: true}, time.Second, 30 * time.Second},
			{e.HostLost{Ended: true}, time.Second, 30 * time.Second},
			{e.HostLost{Refused: true}, 30 * time.Second, 10 * time.Minute},
		} {
			j := newJob(t, e.Config{Policy: p})
			j.expect("start 0 a; start 1 b", hosts("a b", 1))
			lost := tc.lost
			lost.Host, lost.Reason = 1, "no route"
			j.expect("note; note; epoch 1: 0@0.0", e.HostUp{Host: 0}, lost)
			j.expect("", e.Committed{Host: 0, Epoch: 1})
			for n := range 10 {
				j.now += min(tc.first<<n, tc.most) - 1
				j.expect("", e.Tick{})
				j.now++
				j.expect("start 1 b", e.Tick{})
				j.expect("", lost)
			}
			j.now += tc.most
			j.expect("start 1 b", e.Tick{})
			j.expect("news 1 added=true removed=false", e.HostUp{Host: 1})
			// It has been up: hosts that know it by this number must not take another one for it.
			if p.CooldownMin == 0 {
				j.expect("note", e.HostLost{Host: 1, Reason: "no word"})
				j.now += time.Second
				j.expect("start 2 b", e.Tick{})
			}
		}
	}
}

// TestLostHostReturns: a host that was lost is tried again by itself, the later the more often it was lost, and later
// if the machine was there all the time; what was long ago does not count. With a reset limit that is used up it is
// kept ready, and no reason to end the job.
func TestLostHostReturns(t *testing.T) {
	j := newJob(t, e.Config{Policy: e.Policy{NP: 1, ResetLimit: 2}})
	j.expect("start 0 a; start 1 b", hosts("a b", 1))
	j.expect("epoch 1: 0@0.0 1@1.0", e.HostUp{Host: 0}, e.HostUp{Host: 1})
	j.expect("", e.Committed{Host: 0, Epoch: 1})
	id := 1
	gone, ended, alive := e.HostLost{}, e.HostLost{Ended: true}, e.HostLost{Alive: true}
	lost := func(how e.HostLost, after time.Duration) {
		t.Helper()
		how.Host, how.Reason = id, "no word"
		j.m.Step(j.now, how)
		j.now += after - 1
		j.expect("", e.Tick{})
		j.now++
		id++
		j.expect(fmt.Sprintf("start %d b", id), e.Tick{})
	}
	lost(gone, time.Second)
	j.expect("", e.Committed{Host: 0, Epoch: 2})
	j.expect("news 1 added=true removed=false", e.HostUp{Host: id})
	j.expect("epoch 3: 0@0.0 2@2.0", e.Rejoining{Process: 0, Epoch: 2})
	j.expect("", e.Committed{Host: 0, Epoch: 3})
	j.expect("note; end too many resets process=-1 host=2 code=0: the reset limit of 2 is reached: host b was lost: no word", e.HostLost{Host: 2, Reason: "no word"})

	j = newJob(t, e.Config{Policy: e.Policy{NP: 1, ResetLimit: 1}})
	j.expect("start 0 a; start 1 b", hosts("a b", 1))
	j.expect("epoch 1: 0@0.0 1@1.0", e.HostUp{Host: 0}, e.HostUp{Host: 1})
	j.expect("", e.Committed{Host: 0, Epoch: 1})
	id = 1
	lost(gone, time.Second)
	j.expect("", e.Committed{Host: 0, Epoch: 2})
	for _, again := range []struct {
		up    time.Duration
		how   e.HostLost
		after time.Duration
	}{{0, gone, 2 * time.Second}, {9 * time.Minute, gone, 4 * time.Second}, {0, alive, 4 * time.Minute}, {0, gone, 16 * time.Second}, {10 * time.Minute, gone, time.Second},
		{10 * time.Minute, alive, 30 * time.Second}, {10 * time.Minute, ended, 5 * time.Second}, {0, ended, 10 * time.Second}} {
		j.expect("", e.HostUp{Host: id})
		j.now += again.up
		lost(again.how, again.after)
	}
	for range 20 {
		j.m.Step(j.now, e.HostUp{Host: id})
		j.m.Step(j.now, e.HostLost{Host: id})
		j.now += time.Hour
		id++
		j.m.Step(j.now, e.Tick{})
	}
	j.expect("", e.HostUp{Host: id})
	lost(gone, time.Hour)
}

// TestTooFewToBegin: one line reports that slots are missing for the first world, when no host is on its way that may
// have them.
func TestTooFewToBegin(t *testing.T) {
	j := newJob(t, e.Config{Policy: e.Policy{NP: 2, ResetLimit: -1}})
	j.expect("start 0 a", hosts("a", 1))
	j.now += time.Minute
	j.expect("", e.Tick{})
	j.expect("note", e.HostUp{Host: 0})
	j.now += time.Minute
	j.expect("", e.Tick{})
	j.expect("start 1 b", hosts("a b", 1))
	j.expect("epoch 1: 0@0.0 1@1.0", e.HostUp{Host: 1})
}

// TestBeginsAnew: ranks that ask for another world with the same members get it at once, but not again and again
// without a pause; one that has lasted makes that good.
func TestBeginsAnew(t *testing.T) {
	j := newJob(t, e.Config{Policy: e.Policy{NP: 1, ResetLimit: -1}})
	j.expect("start 0 a", hosts("a", 1))
	j.expect("epoch 1: 0@0.0", e.HostUp{Host: 0})
	epoch := uint32(1)
	again := func(after time.Duration, want string) {
		t.Helper()
		j.expect("", e.Committed{Host: 0, Epoch: epoch})
		if epoch++; after > 0 {
			j.expect("", e.Rejoining{Process: 0, Epoch: epoch - 1})
			j.now += after - 1
			j.expect("", e.Tick{})
			j.now++
			j.expect(fmt.Sprintf("%sepoch %d: 0@0.0", want, epoch), e.Tick{})
			return
		}
		j.expect(fmt.Sprintf("%sepoch %d: 0@0.0", want, epoch), e.Rejoining{Process: 0, Epoch: epoch - 1})
	}
	for range 2 {
		for range 4 {
			again(0, "")
		}
		again(50*time.Millisecond, "")
		again(100*time.Millisecond, "")
		again(200*time.Millisecond, "")
		again(400*time.Millisecond, "note; ")
		again(800*time.Millisecond, "")
		again(time.Second, "")
		again(time.Second, "")
		j.now += 10 * time.Second
		again(0, "")
		j.now += 10 * time.Second
	}
}

// TestAllProcessesLost: a job whose processes are all lost goes on with new ones, in slots that are there or that come
// in time.
func TestAllProcessesLost(t *testing.T) {
	lost := func(host int) e.HostLost { return e.HostLost{Host: host, Reason: "no word"} }
	t.Run("the only one, and a slot is free", func(t *testing.T) {
		j := newJob(t, e.Config{Policy: e.Policy{NP: 1, MaxNP: 1, ResetLimit: -1, Listed: true}})
		j.expect("epoch 1: 0@0.0", hosts("a b", 1), e.HostUp{Host: 0})
		j.expect("", e.HostUp{Host: 1}, e.Committed{Host: 0, Epoch: 1})
		j.expect("epoch 2: 1@1.0; drop 0", e.Exited{Process: 0, Code: 137})
	})
	t.Run("on one host, and a spare one is ready", func(t *testing.T) {
		j := newJob(t, e.Config{Policy: e.Policy{NP: 2, MaxNP: 2, ResetLimit: -1, Listed: true}})
		j.expect("epoch 1: 0@0.0 1@0.1", hosts("a b", 2), e.HostUp{Host: 0})
		j.expect("", e.Committed{Host: 0, Epoch: 1}, e.HostUp{Host: 1})
		j.expect("note; epoch 2: 2@1.0 3@1.1", lost(0))
	})
	t.Run("with their host, which returns", func(t *testing.T) {
		j := newJob(t, e.Config{Policy: e.Policy{NP: 1, ResetLimit: -1, Listed: true}})
		j.expect("epoch 1: 0@0.0", hosts("a", 1), e.HostUp{Host: 0})
		j.expect("note; note", e.Committed{Host: 0, Epoch: 1}, lost(0))
		j.now += time.Second
		j.expect("start 1 a", e.Tick{})
		j.expect("epoch 2: 1@1.0", e.HostUp{Host: 1})
	})
	t.Run("with their host, which does not return", func(t *testing.T) {
		j := newJob(t, e.Config{Policy: e.Policy{NP: 1, ResetLimit: -1, Listed: true, Timeout: time.Minute}})
		j.expect("note; note", hosts("a", 1), e.HostUp{Host: 0}, e.Committed{Host: 0, Epoch: 1}, lost(0))
		j.now += time.Minute
		j.m.Step(j.now-1, e.Tick{})
		j.expect("end too few process=-1 host=0 code=0: too few slots: 1 needed, 0 there after 1m0s, after host a was lost: no word", e.Tick{})
	})
	t.Run("one has finished", func(t *testing.T) {
		j := newJob(t, e.Config{Policy: e.Policy{NP: 2, MaxNP: 2, ResetLimit: -1, Listed: true}})
		j.expect("", hosts("a b", 2), e.HostUp{Host: 0}, e.Committed{Host: 0, Epoch: 1}, e.HostUp{Host: 1}, e.Exited{Process: 0})
		j.expect("end process failed process=1 host=0 code=5: process 1 on a exited with code 5", e.Exited{Process: 1, Code: 5})
	})
}

// TestLossLimit: a script that fails wherever it runs ends the job after so many losses of all processes, at once or
// one after the other, unless something was committed in between or they were long ago.
func TestLossLimit(t *testing.T) {
	one := e.Policy{NP: 1, MaxNP: 1, ResetLimit: -1, LossLimit: 2}
	begin := func(t *testing.T, p e.Policy) *job {
		j := newJob(t, e.Config{Policy: p})
		j.expect("epoch 1: 0@0.0", hosts("a", 9), e.HostUp{Host: 0})
		return j
	}
	const end = "note; end process failed process=1 host=0 code=4: process 1 on a exited with code 4"
	t.Run("at once", func(t *testing.T) {
		j := begin(t, one)
		j.expect("epoch 2: 1@0.1", e.Exited{Process: 0, Code: 3})
		j.expect(end, e.Committed{Host: 0, Epoch: 2}, e.Exited{Process: 1, Code: 4})
	})
	t.Run("with commits in between", func(t *testing.T) {
		j := begin(t, one)
		for n := range 8 {
			j.expect("", e.Committed{Host: 0, Epoch: uint32(n + 1)}, e.Kept{Host: 0, Epoch: uint32(n + 1)})
			j.expect(fmt.Sprintf("epoch %d: %d@0.%d", n+2, n+1, n+1), e.Exited{Process: n, Code: 137})
		}
	})
	t.Run("long apart", func(t *testing.T) {
		j := begin(t, one)
		for n := range 8 {
			j.now += 10 * time.Minute
			j.expect(fmt.Sprintf("epoch %d: %d@0.%d", n+2, n+1, n+1), e.Exited{Process: n, Code: 137})
		}
	})
	t.Run("one after the other", func(t *testing.T) {
		p := one
		p.NP, p.MaxNP = 2, 2
		j := newJob(t, e.Config{Policy: p})
		j.expect("epoch 1: 0@0.0 1@0.1", hosts("a", 9), e.HostUp{Host: 0})
		j.expect("epoch 2: 1@0.1 2@0.2", e.Exited{Process: 0, Code: 3})
		j.expect("epoch 3: 2@0.2 3@0.3", e.Exited{Process: 1, Code: 3})
		j.expect("epoch 4: 3@0.3 4@0.4", e.Exited{Process: 2, Code: 3})
		j.expect("note; end process failed process=0 host=0 code=3: process 0 on a exited with code 3", e.Exited{Process: 3, Code: 3})
	})
	t.Run("those that were let go have not failed", func(t *testing.T) {
		j := newJob(t, e.Config{Policy: e.Policy{NP: 1, ResetLimit: -1, LossLimit: 1}})
		j.expect("epoch 1: 0@0.0", hosts("a", 1), e.HostUp{Host: 0})
		j.expect("news 1 added=true removed=false", hosts("b", 1), e.Committed{Host: 0, Epoch: 1}, e.HostUp{Host: 1})
		j.expect("epoch 2: 0@0.0 1@1.0", e.Rejoining{Process: 0, Epoch: 1})
		j.expect("news 2 added=false removed=true", e.Committed{Host: 1, Epoch: 2})
		j.expect("epoch 3: 1@1.0; drop 0", e.Rejoining{Process: 0, Epoch: 2}, e.Rejoining{Process: 1, Epoch: 2})
		j.expect("", e.Committed{Host: 1, Epoch: 3}, e.Exited{Process: 0, Code: 143}, e.Tick{})
	})
	t.Run("what a daemon may say wrongly changes nothing", func(t *testing.T) {
		j := begin(t, one)
		j.expect("epoch 2: 1@0.1", e.Kept{Host: 7, Epoch: 1}, e.Kept{Host: 0, Epoch: 9}, e.Exited{Process: 0, Code: 3})
		j.expect(end, e.Committed{Host: 0, Epoch: 2}, e.Exited{Process: 1, Code: 4})
	})
}

// TestBlacklistHost: with Horovod's policy the host of a failed process is used no more, or when its cooldown has
// ended.
func TestBlacklistHost(t *testing.T) {
	policy := e.Policy{NP: 4, MinNP: 2, ResetLimit: -1, Blacklist: e.BlacklistHost, Timeout: time.Minute}
	t.Run("others of that host are stopped", func(t *testing.T) {
		j := elasticJob(t, policy)
		j.expect("epoch 2: 2@1.0 3@1.1; drop 0", e.Exited{Process: 1, Code: 1})
		j.expect("", e.Committed{Host: 1, Epoch: 2}, e.Exited{Process: 0, Code: 143}, e.HostLost{Host: 0, Reason: "asked"}, e.Tick{})
		j.now += time.Hour
		j.expect("", e.Tick{})
	})
	t.Run("all are blacklisted", func(t *testing.T) {
		j := elasticJob(t, policy)
		j.expect("note; end process failed process=2 host=1 code=7: process 2 on b exited with code 7",
			e.Exited{Process: 0, Code: 7}, e.Committed{Host: 1, Epoch: 2}, e.Kept{Host: 1, Epoch: 2}, e.Exited{Process: 2, Code: 7})
	})
	t.Run("too few are left", func(t *testing.T) {
		p := policy
		p.MinNP = 4
		j := elasticJob(t, p)
		j.expect("note", e.Exited{Process: 0, Code: 7})
		j.now += time.Minute
		j.expect("end too few process=0 host=0 code=7: too few slots: 4 needed, 2 there after 1m0s, after process 0 on a exited with code 7", e.Tick{})
	})
	t.Run("resurrection", func(t *testing.T) {
		p := policy
		p.CooldownMin, p.CooldownMax = 10*time.Second, 35*time.Second
		j := elasticJob(t, p)
		first, host := 0, 0 // the first process of the host a, and its number
		for n, cooldown := range []time.Duration{10, 20, 35, 35} {
			epoch := uint32(2*n + 2)
			j.expect(fmt.Sprintf("epoch %d: 2@1.0 3@1.1; drop %d", epoch, host), e.Exited{Process: first, Code: 1})
			j.expect("", e.Committed{Host: 1, Epoch: epoch}, e.Exited{Process: first + 1, Code: 143}, e.HostLost{Host: host, Reason: "asked"})
			j.now += cooldown*time.Second - 1
			j.expect("", e.Tick{})
			j.now++
			first, host = 4+2*n, n+2
			j.expect(fmt.Sprintf("start %d a", host), e.Tick{})
			j.expect(fmt.Sprintf("news %d added=true removed=false", n+1), e.HostUp{Host: host})
			j.expect(fmt.Sprintf("epoch %d: 2@1.0 3@1.1 %d@%d.0 %d@%d.1", epoch+1, first, host, first+1, host),
				e.Rejoining{Process: 2, Epoch: epoch}, e.Rejoining{Process: 3, Epoch: epoch})
			j.expect("", e.Committed{Host: 1, Epoch: epoch + 1}, e.Kept{Host: 1, Epoch: epoch + 1})
		}
	})
	t.Run("the state of the training is handed over first", func(t *testing.T) {
		p := policy
		p.MinNP = 1
		j := newJob(t, e.Config{Policy: p})
		j.expect("epoch 1: 0@0.0 1@0.1 2@0.2 3@0.3", hosts("a", 4), e.HostUp{Host: 0})
		j.expect("news 1 added=true removed=false", e.Committed{Host: 0, Epoch: 1}, hosts("a b", 4), e.HostUp{Host: 1})
		j.expect("epoch 2: 1@0.1 4@1.0 5@1.1 6@1.2 7@1.3", e.Exited{Process: 0, Code: 1})
		j.expect("news 2 added=false removed=true", e.Committed{Host: 1, Epoch: 2})
		j.expect("epoch 3: 4@1.0 5@1.1 6@1.2 7@1.3; drop 0", e.Rejoining{Process: 1, Epoch: 2}, e.Rejoining{Process: 4, Epoch: 2},
			e.Rejoining{Process: 5, Epoch: 2}, e.Rejoining{Process: 6, Epoch: 2}, e.Rejoining{Process: 7, Epoch: 2})
	})
	t.Run("unless nothing takes their place", func(t *testing.T) {
		p := policy
		p.MinNP, p.Listed = 1, true
		j := newJob(t, e.Config{Policy: p})
		j.expect("", hosts("a", 4), e.HostUp{Host: 0}, e.Committed{Host: 0, Epoch: 1})
		j.expect("note; end process failed process=0 host=0 code=1: process 0 on a exited with code 1", e.Exited{Process: 0, Code: 1})
	})
}

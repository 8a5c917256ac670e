package elastic_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	e "gorun/launcher/elastic"
)

// fixedJob is a job with two ranks on each of two hosts, which are up.
func fixedJob(t *testing.T, cfg e.Config) *job {
	t.Helper()
	cfg.Policy, cfg.Ranks = e.Fixed(4), []int{0, 1, 0, 1}
	j := newJob(t, cfg)
	j.expect("start 0 a; start 1 b", hosts("a b", 2))
	j.expect("", e.HostUp{Host: 1})
	j.expect("epoch 1: 0@0.0 1@1.0 2@0.1 3@1.1", e.HostUp{Host: 0})
	return j
}

func (j *job) runs() {
	j.Helper()
	for p := range 4 {
		j.expect("", e.Started{Process: p})
	}
}

// TestFixedStart: a start that fails gathers the failures of all hosts, and no longer than it must.
func TestFixedStart(t *testing.T) {
	start := func(t *testing.T) *job {
		j := newJob(t, e.Config{Policy: e.Fixed(3), Ranks: []int{0, 1, 2}})
		j.expect("start 0 a; start 1 b; start 2 c", hosts("a b c", 1))
		j.expect("", e.HostLost{Host: 1, Reason: "no route"})
		return j
	}
	const end = "end host failed process=-1 host=1 code=0: host b was lost: no route"
	t.Run("one host stays open", func(t *testing.T) {
		j := start(t)
		j.now = 5*time.Second - 1
		j.expect("", e.HostUp{Host: 0}, e.Tick{})
		j.now = 5 * time.Second
		j.expect(end, e.Tick{})
	})
	t.Run("all hosts are decided", func(t *testing.T) {
		j := start(t)
		j.expect("", e.HostUp{Host: 0})
		j.expect(end, e.HostLost{Host: 2, Reason: "no route"})
	})
	t.Run("a daemon gives up", func(t *testing.T) {
		j := start(t)
		j.expect("", e.HostUp{Host: 0})
		j.expect(end, e.HostEvicted{Host: 2, Own: true, Reason: "no memory"})
	})
	t.Run("it names all", func(t *testing.T) {
		j := start(t)
		j.m.Step(0, e.HostLost{Host: 0})
		out := j.m.Step(0, e.HostUp{Host: 2})
		if ended := out[0].(e.End); !slices.Equal(ended.Hosts, []int{0, 1}) || !ended.Starting {
			t.Errorf("%+v", ended)
		}
	})
	t.Run("it runs", func(t *testing.T) {
		j := fixedJob(t, e.Config{})
		j.runs()
		out := j.m.Step(0, e.HostLost{Host: 1})
		if ended := out[0].(e.End); !slices.Equal(ended.Hosts, []int{1}) || ended.Starting {
			t.Errorf("%+v", ended)
		}
	})
	t.Run("what ranks do meanwhile is a consequence", func(t *testing.T) {
		j := newJob(t, e.Config{Policy: e.Fixed(3), Ranks: []int{0, 1, 0}})
		j.expect("start 0 a; start 1 b", hosts("a b", 2))
		j.expect("epoch 1: 0@0.0 1@1.0 2@0.1", e.HostUp{Host: 0}, e.HostUp{Host: 1})
		j.expect("", e.Exited{Process: 1})
		j.expect("end process failed process=0 host=0 code=1: process 0 on a exited with code 1", e.Exited{Process: 0, Code: 1})
	})
}

// TestFixedStartTakesTooLong: it is reported until it is answered, and no more when the ranks run; anew for the world
// that is formed later.
func TestFixedStartTakesTooLong(t *testing.T) {
	j := fixedJob(t, e.Config{StartTimeout: 10 * time.Second, RanksFirst: true, FormAfter: time.Second})
	j.now = 10*time.Second - 1
	j.expect("", e.Tick{})
	j.now = 10 * time.Second
	j.expect("late", e.Tick{})
	j.expect("", e.Tick{})
	j.now = 11 * time.Second
	j.expect("late", e.Tick{})
	j.runs()
	j.now = 12 * time.Second
	j.expect("form 1", e.Tick{})
	j.now = 22 * time.Second
	j.expect("late", e.Tick{})
	j.expect("end host failed process=-1 host=1 code=0: host b was lost: its start takes too long", e.StartFailed{Hosts: []int{1}})

	j = fixedJob(t, e.Config{StartTimeout: 10 * time.Second})
	j.runs()
	j.now = time.Hour
	j.expect("", e.Tick{})
}

// TestFixedWorldLater: it is formed when a rank asks, or some time after the last rank has started; a failure then ends
// the job when all hosts have entered it or failed, or a host is lost with its ranks.
func TestFixedWorldLater(t *testing.T) {
	start := func(t *testing.T) *job {
		j := fixedJob(t, e.Config{RanksFirst: true, FormAfter: time.Second})
		if !j.m.Later() || !j.m.Starting() {
			t.Errorf("later %v, starting %v", j.m.Later(), j.m.Starting())
		}
		return j
	}
	t.Run("a rank asks", func(t *testing.T) {
		j := start(t)
		j.expect("form 1", e.Wanted{})
		j.expect("", e.Wanted{})
		j.runs()
		j.now = time.Hour
		j.expect("", e.Tick{}, e.Committed{Host: 0, Epoch: 1})
		if !j.m.Starting() {
			t.Error("it has started before all hosts are in the world")
		}
		if j.expect("", e.Committed{Host: 1, Epoch: 1}); j.m.Starting() {
			t.Error("it is still starting")
		}
	})
	t.Run("no rank asks", func(t *testing.T) {
		j := start(t)
		j.now = time.Hour
		j.expect("", e.Tick{})
		j.runs()
		j.now += time.Second - 1
		j.expect("", e.Tick{})
		j.now++
		j.expect("form 1", e.Tick{})
	})
	const end = "end host failed process=-1 host=0 code=0: host a was lost: no way to b"
	failed := func(t *testing.T) *job {
		j := start(t)
		j.runs()
		j.expect("form 1", e.Wanted{})
		j.expect("", e.HostEvicted{Host: 0, Own: true, Reason: "no way to b"}, e.Exited{Process: 0, Code: 1}, e.Exited{Process: 2, Code: 1})
		return j
	}
	t.Run("the other enters it", func(t *testing.T) { failed(t).expect(end, e.Committed{Host: 1, Epoch: 1}) })
	t.Run("the other fails", func(t *testing.T) { failed(t).expect("hang up on 1; "+end, e.HostEvicted{Host: 1}) })
	t.Run("its ranks end", func(t *testing.T) { failed(t).expect(end, e.Exited{Process: 1}, e.Exited{Process: 3}) })
	t.Run("it is lost", func(t *testing.T) { failed(t).expect(end, e.HostLost{Host: 0}) })
	t.Run("the ranks end before", func(t *testing.T) {
		j := start(t)
		for p := range 3 {
			j.expect("", e.Exited{Process: p})
		}
		j.expect("end finished process=-1 host=-1 code=0: ", e.Exited{Process: 3})
	})
}

// TestFixedEnds: what ends a job that runs.
func TestFixedEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		events []e.Event
		want   string
	}{
		"a daemon stops its ranks": {[]e.Event{e.Exited{Process: 1, Code: 143, Asked: true}},
			"end host failed process=-1 host=1 code=0: host b was lost: its daemon has stopped its processes"},
		"others evict a host": {[]e.Event{e.HostEvicted{Host: 1, Reason: "silent"}}, "hang up on 1; end host failed process=-1 host=1 code=0: host b was lost: silent"},
		"some begin anew": {[]e.Event{e.Rejoining{Process: 0, Epoch: 1}, e.Exited{Process: 1}, e.Exited{Process: 2}, e.Exited{Process: 3}},
			"end divided process=-1 host=-1 code=0: some processes wait for another world, and the others have ended"},
		"some ended before": {[]e.Event{e.Exited{Process: 0}, e.Rejoining{Process: 1, Epoch: 1}, e.Rejoining{Process: 2, Epoch: 1}, e.Rejoining{Process: 3, Epoch: 1}},
			"end divided process=-1 host=-1 code=0: some processes wait for another world, and the others have ended"},
	} {
		t.Run(name, func(t *testing.T) {
			j := fixedJob(t, e.Config{})
			j.runs()
			j.Helper()
			j.expect(tc.want, tc.events...)
		})
	}
}

// TestLossesAreReported: the user hears of each loss of a host or process in a job that goes on, but for what follows
// from another one; why a host cannot be used is reported once for each reason.
func TestLossesAreReported(t *testing.T) {
	report := func(m *e.Machine, now time.Duration, ev e.Event) (out []string) {
		for _, a := range m.Step(now, ev) {
			switch a := a.(type) {
			case e.ProcessLost:
				out = append(out, fmt.Sprint("process ", a.Process))
			case e.GoesOnWithout:
				out = append(out, fmt.Sprintf("host %d: %s", a.Host, a.Why))
			case e.HangUp:
				out = append(out, fmt.Sprint("hang up on ", a.Host))
			}
		}
		return out
	}
	m := elasticJob(t, e.Policy{NP: 4, MinNP: 1, ResetLimit: -1, Timeout: time.Minute}).m
	m.Step(0, hosts("a b c", 2))
	for _, step := range []struct {
		ev   e.Event
		want []string
	}{
		{e.HostEvicted{Host: 2, Reason: "strange"}, []string{"hang up on 2"}},
		{e.HostLost{Host: 2, Reason: "strange"}, nil}, // it was never up
		{e.Exited{Process: 0, Code: 1}, []string{"process 0"}},
		{e.Exited{Process: 1, Code: 143, Asked: true}, nil},
		{e.HostEvicted{Host: 1, Reason: "silent"}, []string{"hang up on 1"}},
		{e.HostEvicted{Host: 1, Reason: "silent"}, nil},
		{e.Exited{Process: 2, Code: 1}, nil},
		{e.HostLost{Host: 1, Reason: "silent"}, []string{"host 1: silent"}},
	} {
		if got := report(m, 0, step.ev); !slices.Equal(got, step.want) {
			t.Errorf("after %T%v: %q, want %q", step.ev, step.ev, got, step.want)
		}
	}
	m.Step(30*time.Second, e.Tick{}) // a host that was never up is tried again
	if got := report(m, 30*time.Second, e.HostEvicted{Host: 2, Reason: "strange"}); len(got) != 1 {
		t.Errorf("its daemon is evicted once more: %q", got)
	}
}

// TestFixedSchedules: whatever happens to a job of fixed size, and whenever another launcher takes over, it ends: well
// if nothing failed, with the first rank that did, or with the hosts that did. Nothing is started twice, and all worlds
// have the same members.
func TestFixedSchedules(t *testing.T) {
	ends := map[e.Cause]int{}
	for seed := range uint64(800) {
		rng := rand.New(rand.NewPCG(seed, 5))
		s := &fixedSim{T: t, seed: seed, rng: rng, n: 1 + rng.IntN(4), hosts: 1 + rng.IntN(3)}
		s.n = max(s.n, s.hosts)
		s.run(max(rng.IntN(4)-1, 0))
		ends[s.end.Cause]++
	}
	t.Log(ends)
	if ends[e.Finished] < 200 || ends[e.HostFailed] < 200 || ends[e.ProcessFailed] < 30 || ends[e.Divided] < 10 {
		t.Errorf("the schedules are too much alike: %v", ends)
	}
}

// fixedSim is a job of fixed size whose daemons and ranks do what they may, in any order.
type fixedSim struct {
	*testing.T
	seed     uint64
	rng      *rand.Rand
	cfg      e.Config
	m        *e.Machine
	now      time.Duration
	n, hosts int
	state    []string // of hosts: "", starting, up, roster, in, lost
	ranks    []string // "", runs, waits, ended
	broken   map[int]bool
	failed   int // the first rank that failed while no host had; -1 for none
	epoch    uint32
	later    bool
	anew     bool // the ranks leave this world for another one, most of them
	end      *e.End
}

func (s *fixedSim) fail(format string, args ...any) {
	s.Helper()
	s.Fatalf("seed %d at %v: %s; hosts %q, ranks %q", s.seed, s.now, fmt.Sprintf(format, args...), s.state, s.ranks)
}

func (s *fixedSim) step(ev e.Event) {
	if s.end != nil {
		return
	}
	if s.rng.IntN(10) == 0 {
		text, err := s.m.Snapshot()
		if err != nil || !json.Valid(text) {
			s.fail("snapshot: %v", err)
		}
		if s.m, _, err = e.Restore(s.cfg, text); err != nil {
			s.fail("restore: %v", err)
		}
	}
	for _, a := range s.m.Step(s.now, ev) {
		s.act(a)
	}
}

func (s *fixedSim) act(a e.Action) {
	if s.end != nil {
		s.fail("%T after the end", a)
	}
	switch a := a.(type) {
	case e.StartHost:
		if s.state[a.Host] != "" {
			s.fail("host %d is started twice", a.Host)
		}
		s.state[a.Host] = "starting"
	case e.HangUp:
		s.broken[a.Host] = true
		s.state[a.Host] = "lost"
	case e.Roster:
		if a.Epoch != s.epoch+1 || len(a.Places) != s.n || a.Later && a.Epoch > 1 {
			s.fail("%+v after epoch %d", a, s.epoch)
		}
		for rank, p := range a.Places {
			if p.Process != rank || p.Host != s.cfg.Ranks[rank] || p.New != (a.Epoch == 1) {
				s.fail("rank %d is %+v", rank, p)
			}
		}
		for h := range s.state {
			if s.state[h] != "up" && s.state[h] != "in" {
				s.fail("host %d has no daemon", h)
			}
			s.state[h] = "roster"
		}
		for rank := range s.ranks {
			if s.ranks[rank] == "waits" {
				s.ranks[rank] = "runs"
			}
		}
		s.epoch, s.later, s.anew = a.Epoch, a.Later, s.rng.IntN(3) == 0
	case e.Form:
		if !s.later {
			s.fail("a world is formed that is not to be formed later")
		}
		s.later = false
	case e.StartLate:
		var late []int
		for h := range s.state {
			if s.state[h] != "in" && s.rng.IntN(2) == 0 {
				late = append(late, h)
				s.broken[h] = true
			}
		}
		s.step(e.StartFailed{Hosts: late})
	case e.End:
		s.end = &a
		s.check(a)
	case e.DropHost, e.HostsChanged, e.GoesOnWithout, e.ProcessLost:
		s.fail("%T in a job of fixed size", a)
	}
}

func (s *fixedSim) check(a e.End) {
	ended := 0
	for _, r := range s.ranks {
		if r == "ended" {
			ended++
		}
	}
	switch a.Cause {
	case e.Finished:
		if ended < s.n || s.failed >= 0 || len(s.broken) > 0 {
			s.fail("it finished")
		}
	case e.ProcessFailed:
		if a.Process != s.failed {
			s.fail("it ends with rank %d, and rank %d failed first", a.Process, s.failed)
		}
	case e.HostFailed:
		for _, h := range a.Hosts {
			if !s.broken[h] {
				s.fail("host %d is named, which has not failed", h)
			}
		}
		if len(a.Hosts) == 0 || len(a.Hosts) != len(s.broken) {
			s.fail("hosts %v are named, and %v failed", a.Hosts, s.broken)
		}
	case e.Divided:
		if ended == 0 || ended == s.n {
			s.fail("it is divided")
		}
	default:
		s.fail("%+v", a)
	}
}

func (s *fixedSim) run(faults int) {
	s.failed, s.broken = -1, map[int]bool{}
	s.state, s.ranks = make([]string, s.hosts), make([]string, s.n)
	s.cfg = e.Config{Policy: e.Fixed(s.n), RanksFirst: s.rng.IntN(2) == 0, FormAfter: time.Second, StartTimeout: []time.Duration{0, 0, 0, 3 * time.Second}[s.rng.IntN(4)]}
	var list e.Discovered
	for h := range s.hosts {
		list.Hosts = append(list.Hosts, e.DiscoveredHost{Name: fmt.Sprint("h", h), Slots: (s.n + s.hosts - 1 - h) / s.hosts})
	}
	for rank := range s.n {
		s.cfg.Ranks = append(s.cfg.Ranks, rank%s.hosts)
	}
	s.m = e.New(s.cfg)
	s.step(list)
	for steps := 0; s.end == nil; steps++ {
		if steps > 20000 {
			s.fail("it neither ends nor goes on")
		}
		s.now += time.Duration(s.rng.IntN(int(100 * time.Millisecond)))
		s.step(e.Tick{})
		if faults > 0 && s.rng.IntN(10) == 0 {
			faults--
			s.fault(s.rng.IntN(s.hosts), s.rng.IntN(s.n))
			continue
		}
		s.host(s.rng.IntN(s.hosts))
		s.rank(s.rng.IntN(s.n))
	}
}

func (s *fixedSim) fault(h, rank int) {
	if s.end != nil || s.state[h] == "lost" {
		return
	}
	switch running := s.ranks[rank] == "runs"; {
	case s.rng.IntN(2) == 0 && running:
		if s.ranks[rank] = "ended"; len(s.broken) == 0 && s.failed < 0 {
			s.failed = rank
		}
		s.step(e.Exited{Process: rank, Code: 1})
	case s.rng.IntN(2) == 0:
		s.broken[h] = true
		s.step(e.HostEvicted{Host: h, Own: s.rng.IntN(2) == 0, Reason: "fault"})
	default:
		s.state[h], s.broken[h] = "lost", true
		s.step(e.HostLost{Host: h, Reason: "fault"})
	}
}

// host lets a host do one thing.
func (s *fixedSim) host(h int) {
	if s.end != nil || s.rng.IntN(3) > 0 {
		return
	}
	switch s.state[h] {
	case "starting":
		s.state[h] = "up"
		s.step(e.HostUp{Host: h})
	case "roster":
		if !s.later {
			s.state[h] = "in"
			s.step(e.Committed{Host: h, Epoch: s.epoch})
		}
	}
}

// rank lets a rank do one thing.
func (s *fixedSim) rank(rank int) {
	h := s.state[s.cfg.Ranks[rank]]
	if s.end != nil || s.rng.IntN(3) > 0 || h != "in" && h != "roster" {
		return
	}
	switch s.ranks[rank] {
	case "":
		s.ranks[rank] = "runs"
		s.step(e.Started{Process: rank})
	case "runs":
		switch {
		case s.later && s.rng.IntN(3) == 0:
			s.step(e.Wanted{})
		case s.rng.IntN(8) > 0 || h != "in" && s.anew:
		case h == "in" && s.anew != (s.rng.IntN(100) == 0):
			s.ranks[rank] = "waits"
			s.step(e.Rejoining{Process: rank, Epoch: s.epoch})
		default:
			s.ranks[rank] = "ended"
			s.step(e.Exited{Process: rank})
		}
	}
}

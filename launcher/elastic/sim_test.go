package elastic_test

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/launcher/elastic"
)

// sim is a job around one machine: machines that fail, daemons with a queue each way, processes that
// train. Whatever happens comes from one seed.
type sim struct {
	*testing.T
	seed   uint64
	rng    *rand.Rand
	m      *elastic.Machine
	policy elastic.Policy
	now    time.Duration
	trace  []string

	names  []string
	power  map[string]bool
	listed map[string]int
	hosts  []*simHost
	procs  map[int]*simProc
	worlds map[uint32]*simWorld
	last   uint32 // epoch
	stamp  uint64
	faults int // still to come
	calm   int // steps between two of them
	exits  int // with 0
	end    *elastic.End
	// What the test itself remembers about failures: when a slot or a host may be used again.
	barred  map[string]time.Duration
	counts  map[string]int
	failed  map[string]time.Duration // when a process failed in a slot last
	tries   map[string]int           // of hosts, in a row
	returns int                      // of hosts that were lost
	slack   map[string]time.Duration // how much later that may be
	doomed  bool                     // every process fails as soon as it is in a world
	began   time.Duration            // the last roster
	kept    uint32                   // the last epoch in which something was committed, as far as the launcher knows
	losses  int                      // in a row
	unsure  bool                     // when they were counted
	elders  []int                    // the processes that were there at the last time
	elderly struct {
		since time.Duration
		epoch uint32
	}
	excused int                    // failures
	spares  []elastic.ProcessPlace // as the launcher listed them last
	swaps   int                    // spares that entered a world
	drained map[string]int         // the slots of hosts that are drained
	drains  int
	anew    int // worlds without a process of the one before
}

type simHost struct {
	id       int
	name     string
	tried    bool
	alive    bool
	met      bool // as far as the launcher knows
	since    time.Duration
	unwanted bool
	roster   elastic.Roster
	entered  uint32
	kept     uint32
	news     uint32
	gone     bool             // as far as the launcher knows
	in       []elastic.Action // from the launcher
	out      []elastic.Event  // to it
}

type simProc struct {
	place   elastic.ProcessPlace
	host    *simHost
	running bool
	ended   bool
	world   uint32 // 0: waits in init
	left    uint32
	dying   bool
	done    int
	synced  bool // it has taken part in training
	loaded  bool // a spare has reported that it waits in init
	known   bool // and the launcher knows
	ranked  bool // it was in a roster
	over    bool // the launcher knows that it has ended
}

type simWorld struct {
	roster      elastic.Roster
	interrupted bool
	done        int
	commits     int // in this world
}

const goal = 25

func newSim(t *testing.T, seed uint64, policy elastic.Policy, faults int) *sim {
	rng := rand.New(rand.NewPCG(seed, 7))
	policy, err := policy.Check()
	must.Do(t, err)
	return &sim{T: t, seed: seed, rng: rng, policy: policy, faults: faults,
		calm:  []int{6, 60}[rng.IntN(2)],
		m:     elastic.New(elastic.Config{Policy: policy, Jitter: rng.Float64}),
		power: map[string]bool{}, listed: map[string]int{}, procs: map[int]*simProc{}, worlds: map[uint32]*simWorld{},
		drained: map[string]int{}, barred: map[string]time.Duration{}, counts: map[string]int{}, failed: map[string]time.Duration{}, tries: map[string]int{}, slack: map[string]time.Duration{}}
}

func (s *sim) fail(format string, args ...any) {
	s.Helper()
	from := max(len(s.trace)-60, 0)
	s.Fatalf("seed %d: %s\n%s", s.seed, fmt.Sprintf(format, args...), strings.Join(s.trace[from:], "\n"))
}

// replace goes on with what was written down.
func (s *sim) replace() {
	text, err := s.m.Snapshot()
	if err != nil {
		s.fail("%v", err)
	}
	m, _, err := elastic.Restore(elastic.Config{Policy: s.policy, Jitter: s.rng.Float64}, text)
	if err != nil {
		s.fail("%v", err)
	}
	again, err := m.Snapshot()
	if err != nil || !bytes.Equal(text, again) {
		s.fail("%v: %s was read, and is written %s", err, text, again)
	}
	s.m = m
}

func (s *sim) step(ev elastic.Event) {
	if s.end != nil {
		return
	}
	if s.rng.IntN(20) == 0 { // another launcher takes over
		s.replace()
	}
	if _, tick := ev.(elastic.Tick); !tick {
		s.trace = append(s.trace, fmt.Sprintf("%v %T%v", s.now, ev, ev))
	}
	for _, a := range s.m.Step(s.now, ev) {
		s.trace = append(s.trace, fmt.Sprintf("%v   → %T%v", s.now, a, a))
		s.act(a)
	}
}

func (s *sim) act(a elastic.Action) {
	if s.end != nil {
		s.fail("%T after the end", a)
	}
	switch a := a.(type) {
	case elastic.StartHost:
		if a.Host == len(s.hosts) {
			s.hosts = append(s.hosts, nil)
		} else if h := s.hosts[a.Host]; h.alive || h.met || h.unwanted || h.name != a.Name || len(h.out) > 0 {
			s.fail("host id %d of %s is given to %s", a.Host, h.name, a.Name)
		}
		for _, h := range s.hosts {
			if h != nil && h.name == a.Name && h.alive {
				s.fail("two daemons on %s", a.Name)
			}
		}
		s.barredFor(a.Name, "host")
		s.barredFor(a.Name+"?", "host")
		s.hosts[a.Host] = &simHost{id: a.Host, name: a.Name}
	case elastic.DropHost:
		s.hosts[a.Host].unwanted = true
		s.hosts[a.Host].in = append(s.hosts[a.Host].in, a)
	case elastic.Roster:
		s.check(a)
		before := s.present()
		s.last, s.worlds[a.Epoch] = a.Epoch, &simWorld{roster: a}
		present := s.present()
		if s.elders == nil {
			s.beginElders(present)
		}
		for _, n := range before {
			p := s.procs[n]
			switch key := fmt.Sprintf("%s:%d", p.host.name, p.place.Slot); {
			case slices.Contains(present, n):
			case s.free(key):
				s.elders = present
			case s.now >= s.barred[key]: // it may have been let go for the failure of another, or not
				s.unsure = true
			}
		}
		to := map[int]bool{}
		for _, id := range a.Hosts() {
			to[id] = true
		}
		for _, p := range s.procs {
			to[p.host.id] = to[p.host.id] || !p.over && !p.host.unwanted && !p.host.gone
		}
		for id, h := range s.hosts {
			if to[id] {
				h.in = append(h.in, a)
			}
		}
		s.list(a.Spares)
	case elastic.Spares:
		if a.Epoch != s.last {
			s.fail("spares of epoch %d in epoch %d", a.Epoch, s.last)
		}
		s.list(a.Places)
		for _, h := range s.hosts {
			if h != nil && h.met && !h.gone && !h.unwanted {
				h.in = append(h.in, a)
			}
		}
	case elastic.HostsChanged:
		if a.Epoch != s.last || a.Stamp <= s.stamp || !a.Added && !a.Removed {
			s.fail("news %+v in epoch %d after stamp %d", a, s.last, s.stamp)
		}
		s.stamp = a.Stamp
		for _, id := range s.worlds[a.Epoch].roster.Hosts() {
			s.hosts[id].in = append(s.hosts[id].in, a)
		}
	case elastic.End:
		s.end = &a
		s.checkEnd(a)
	}
}

// list takes a list of spares: each is one of before, or new, and none has a place in the world.
func (s *sim) list(spares []elastic.ProcessPlace) {
	slots := map[string]bool{}
	for _, p := range s.worlds[s.last].roster.Places {
		if old := s.procs[p.Process]; !old.over {
			slots[fmt.Sprint(p.Host, ":", p.Slot)] = true
		}
	}
	for i, p := range spares {
		old, slot := s.procs[p.Process], fmt.Sprint(p.Host, ":", p.Slot)
		if p.New != (old == nil) || slots[slot] || p.Rank != len(s.worlds[s.last].roster.Places)+i {
			s.fail("spare %+v; its slot is taken: %v", p, slots[slot])
		}
		slots[slot] = true
		if !p.New {
			if old.ranked || old.place.Host != p.Host || old.place.Slot != p.Slot {
				s.fail("process %d is a spare, and was in a world or elsewhere", p.Process)
			}
			continue
		}
		h := s.hosts[p.Host]
		s.barredFor(fmt.Sprintf("%s:%d", h.name, p.Slot), "slot")
		if len(s.procs) != p.Process || s.exits > 0 {
			s.fail("spare %d after %d, and %d have finished", p.Process, len(s.procs), s.exits)
		}
		s.procs[p.Process] = &simProc{place: p, host: h}
	}
	stay := 0
	for _, n := range s.present() {
		if p := s.procs[n]; p.place.Slot < s.listed[p.host.name] && s.free(fmt.Sprintf("%s:%d", p.host.name, p.place.Slot)) {
			stay++
		}
	}
	if len(spares) > s.policy.Spares+max(s.policy.MaxNP-stay, 0) && len(spares) > len(s.spares) {
		s.fail("%d spares beside %d processes", len(spares), stay)
	}
	s.spares = spares
}

// waiting is how many spares can enter a world, as far as the launcher surely knows.
func (s *sim) waiting() (n int) {
	for _, place := range s.spares {
		p := s.procs[place.Process]
		if p.known && !p.over && !p.host.gone && !p.host.unwanted && place.Slot < s.listed[p.host.name] &&
			s.free(fmt.Sprintf("%s:%d", p.host.name, place.Slot)) {
			n++
		}
	}
	return n
}

// usable is how many processes could run now, as far as the launcher knows.
func (s *sim) usable() (n int) {
	taken := map[string]bool{}
	if w := s.worlds[s.last]; w != nil {
		for _, place := range w.roster.Places {
			p := s.procs[place.Process]
			slot := fmt.Sprintf("%s:%d", p.host.name, place.Slot)
			if taken[slot] = true; !p.over && s.free(slot) {
				n++
			} else if p.over {
				taken[slot] = false
			}
		}
	}
	for _, h := range s.hosts {
		if h == nil || !h.met || h.gone || h.unwanted || !s.free(h.name) {
			continue
		}
		for slot := range s.listed[h.name] {
			if key := fmt.Sprintf("%s:%d", h.name, slot); !taken[key] && s.free(key) {
				n++
			}
		}
	}
	return n
}

// free reports whether a slot or a host can surely be used.
func (s *sim) free(key string) bool {
	until, barred := s.barred[key]
	return !barred || s.now >= until+s.slack[key]
}

// checkEnd fails if the job ends although enough slots are there, or may be in time.
func (s *sim) checkEnd(e elastic.End) {
	switch {
	case s.exits > 0 || e.Cause == elastic.TooManyResets:
		return
	case e.Cause == elastic.Finished:
		s.fail("finished although no process has")
	}
	live, possible, good, bad := len(s.present()), 0, 0, 0
	for _, name := range s.names {
		met := s.tries[name] == 0
		for _, h := range s.hosts {
			met = met || h != nil && h.name == name && h.met
		}
		for slot := range s.listed[name] {
			if s.barred[fmt.Sprintf("%s:%d", name, slot)] == 1<<62 {
				bad++
				continue
			}
			if good++; met {
				possible++
			}
		}
	}
	need := s.policy.MinNP
	if s.last == 0 {
		need = s.policy.NP
	}
	switch {
	case s.last > 0 && (s.losses >= s.policy.LossLimit || s.unsure): // the limit
	case s.policy.Blacklist == elastic.BlacklistHost && good == 0 && bad > 0: // all hosts are blacklisted
	case live == 0 && s.losses > 0 && good < s.policy.MinNP && good+bad >= s.policy.MinNP: // it fails in every slot
	case s.usable() >= need:
		s.fail("the job ends although %d slots can be used", s.usable())
	case s.policy.Listed && possible < s.policy.MinNP:
	case s.now-s.began < s.policy.Timeout:
		s.fail("the job ends %v after its last world began, and slots may come", s.now-s.began)
	}
}

func (s *sim) barredFor(key, what string) {
	if until, ok := s.barred[key]; ok && s.now < until {
		s.fail("%s %s is used %v before its cooldown ends", what, key, until-s.now)
	}
}

func (s *sim) bar(key string) {
	s.counts[key]++
	s.failed[key] = s.now
	delay := s.policy.CooldownMin
	for i := 1; i < s.counts[key]; i++ {
		delay *= 2
	}
	delay = min(delay, s.policy.CooldownMax)
	s.barred[key], s.slack[key] = s.now+delay, s.policy.CooldownMax-delay
	if s.policy.CooldownMin == 0 {
		s.barred[key] = 1 << 62
	}
}

// check holds a roster against what must always be true of one.
func (s *sim) check(r elastic.Roster) {
	if r.Epoch <= s.last {
		s.fail("epoch %d after %d", r.Epoch, s.last)
	}
	before := s.worlds[s.last]
	s.began = s.now
	need := s.policy.MinNP
	if r.Epoch == 1 {
		need = s.policy.NP
	}
	if s.exits > 0 {
		need = 1
	}
	if len(r.Places) < need || s.policy.MaxNP > 0 && len(r.Places) > s.policy.MaxNP {
		s.fail("%d places, min %d max %d", len(r.Places), need, s.policy.MaxNP)
	}
	slots := map[string]bool{}
	local, cross := map[int]int{}, map[int][]int{}
	var survivors []int
	synced, barred, swapped, waiting := false, 0, 0, s.waiting()
	for rank, p := range r.Places {
		h := s.hosts[p.Host]
		slot := fmt.Sprintf("%s:%d", h.name, p.Slot)
		if slots[slot] {
			s.fail("slot %s has two processes", slot)
		}
		slots[slot] = true
		if p.Rank != rank || p.LocalRank != local[p.Host] || slices.Contains(cross[p.LocalRank], p.CrossRank) || p.CrossRank < 0 || p.CrossRank >= p.CrossSize {
			s.fail("rank %d: %+v", rank, p)
		}
		local[p.Host]++
		cross[p.LocalRank] = append(cross[p.LocalRank], p.CrossRank)
		old := s.procs[p.Process]
		if p.New != (old == nil) {
			s.fail("process %d is new: %v", p.Process, p.New)
		}
		if p.New {
			s.barredFor(slot, "slot")
			s.barredFor(h.name, "host")
			if len(s.procs) != p.Process {
				s.fail("process %d after %d", p.Process, len(s.procs))
			}
			s.procs[p.Process] = &simProc{place: p, host: h, ranked: true}
			continue
		}
		if !old.ranked {
			s.barredFor(slot, "slot")
			old.ranked = true
			swapped++
			continue
		}
		if old.place.Host != p.Host || old.place.Slot != p.Slot {
			s.fail("process %d moved", p.Process)
		}
		if s.now < s.barred[slot] {
			barred++
		}
		survivors = append(survivors, p.Process)
		synced = synced || old.synced
		if len(survivors) != rank+1 {
			s.fail("a survivor comes after a new process")
		}
	}
	for _, p := range r.Places {
		if p.CrossSize != len(cross[p.LocalRank]) {
			s.fail("sizes of %+v", p)
		}
	}
	s.swaps += swapped
	if before == nil {
		return
	}
	if s.exits == 0 && len(r.Places) < min(len(before.roster.Places), len(survivors)+waiting) {
		s.fail("%d of %d processes go on, although %d spares wait", len(r.Places), len(before.roster.Places), waiting)
	}
	for _, p := range before.roster.Places {
		if p := s.procs[p.Process]; p.synced && !p.over && !synced {
			s.fail("process %d has the state and must go; nobody else has it", p.place.Process)
		}
	}
	if s.exits == 0 && (barred > 1 || barred == 1 && s.policy.Blacklist != elastic.BlacklistHost) {
		s.fail("%d processes go on where one has failed", barred)
	}
	if len(survivors) == 0 {
		s.anew++
		for _, p := range before.roster.Places {
			if !s.procs[p.Process].over {
				s.fail("process %d must go, and no other goes on", p.Process)
			}
		}
	}
	at := -1
	for _, n := range survivors {
		next := slices.IndexFunc(before.roster.Places, func(p elastic.ProcessPlace) bool { return p.Process == n })
		if next <= at {
			s.fail("survivors changed their order")
		}
		at = next
	}
}

// run lets things happen until the job has ended.
func (s *sim) run() {
	for i, n := 0, 1+s.rng.IntN(4); i < n && !s.doomed; i++ {
		s.names = append(s.names, string(rune('a'+i)))
		s.power[s.names[i]] = true
		s.listed[s.names[i]] = 1 + s.rng.IntN(3)
	}
	s.discover()
	for steps := 0; s.end == nil; steps++ {
		if steps > 60000 {
			s.fail("the job neither ends nor goes on")
		}
		s.now += time.Duration(s.rng.IntN(int(40 * time.Millisecond)))
		if s.faults > 0 && s.rng.IntN(s.calm) == 0 {
			s.faults--
			s.fault()
			if s.faults == 0 {
				s.repair()
			}
		}
		switch k := s.rng.IntN(20); {
		case k == 0:
			s.step(elastic.Tick{})
		case k < 14 && len(s.hosts) > 0:
			s.host(s.hosts[s.rng.IntN(len(s.hosts))])
		case len(s.procs) > 0:
			s.process(s.procs[s.rng.IntN(len(s.procs))])
		}
	}
}

func (s *sim) discover() {
	var list []elastic.DiscoveredHost
	for _, n := range s.names {
		if slots := s.listed[n] + s.drained[n]; slots > 0 {
			list = append(list, elastic.DiscoveredHost{Name: n, Slots: slots})
		}
		if s.listed[n] == 0 {
			s.forgive(n)
		}
	}
	s.step(elastic.Discovered{Hosts: list})
}

// forgive forgets what was held against a host that is withdrawn, but for a running cooldown.
func (s *sim) forgive(n string) {
	s.tries[n] = 0
	delete(s.barred, n+"?")
	if s.policy.CooldownMin == 0 {
		delete(s.barred, n)
		delete(s.counts, n)
	}
	for key, until := range s.barred {
		if until == 1<<62 && (key == n || strings.HasPrefix(key, n+":")) {
			delete(s.barred, key)
		}
	}
}

// offer sets the slots that discovery reports of a host.
func (s *sim) offer(name string, slots int) {
	if _, drained := s.drained[name]; drained {
		s.drained[name] = slots
	} else {
		s.listed[name] = slots
	}
}

func (s *sim) fault() {
	name := s.names[s.rng.IntN(len(s.names))]
	switch s.rng.IntN(8) {
	case 0, 1, 2:
		for _, number := range slices.Sorted(maps.Keys(s.procs)) {
			if p := s.procs[number]; p.running && s.rng.IntN(3) == 0 {
				s.exit(p, 1+s.rng.IntN(250))
				return
			}
		}
	case 3:
		s.power[name] = !s.power[name]
		for _, h := range s.hosts {
			if h.name == name && h.alive && !s.power[name] {
				h.out = h.out[:s.rng.IntN(len(h.out)+1)] // the rest is never heard
				s.gone(h, "no word")
			}
		}
	case 4: // move to another host
		if !s.policy.Listed {
			for _, n := range s.names {
				s.offer(n, 0)
			}
			s.offer(name, 1+s.rng.IntN(3))
			s.discover()
		}
	case 5:
		slots, drained := s.drained[name]
		if drained {
			delete(s.drained, name)
			s.listed[name] = slots
		} else {
			s.drained[name], s.listed[name] = s.listed[name], 0
			s.drains++
		}
		if s.listed[name] == 0 {
			s.forgive(name)
		}
		s.step(elastic.Drain{Host: name, Undo: drained})
	default:
		if !s.policy.Listed {
			s.offer(name, s.rng.IntN(4))
			s.discover()
		}
	}
}

func (s *sim) repair() {
	for _, n := range s.names {
		s.power[n] = true
		if slots, drained := s.drained[n]; drained {
			delete(s.drained, n)
			if s.listed[n] = slots; slots == 0 {
				s.forgive(n)
			}
			s.step(elastic.Drain{Host: n, Undo: true})
		}
		if !s.policy.Listed {
			s.listed[n] = 3
		}
	}
	s.discover()
}

func (s *sim) gone(h *simHost, reason string) {
	h.alive = false
	for _, p := range s.procs {
		if p.host == h {
			p.running, p.ended, p.world = false, true, 0
		}
	}
	known := s.rng.IntN(6)
	h.out = append(h.out, elastic.HostLost{Host: h.id, Reason: reason, Ended: known == 0, Alive: known == 1, Refused: known == 2,
		Silent: time.Duration(s.rng.IntN(20)) * time.Second})
}

// excuse forgets the failures since a host that is lost fell silent. Where jitter decides whether a ban has ended, which
// is then not excused, the next one may be the shorter of two.
func (s *sim) excuse(lost string, silent time.Duration) {
	for key, at := range s.failed {
		if silent > 0 && at >= s.now-silent && !strings.HasPrefix(key, lost+":") && s.now < s.barred[key]+s.slack[key] {
			s.counts[key]--
			s.excused++
			delete(s.barred, key)
			delete(s.slack, key)
		}
	}
}

func (s *sim) exit(p *simProc, code int) {
	p.running, p.ended, p.world = false, true, 0
	p.host.out = append(p.host.out, elastic.Exited{Process: p.place.Process, Code: code})
}

// host lets a daemon do one thing: be heard, listen, or enter a world.
func (s *sim) host(h *simHost) {
	if len(h.out) > 0 && s.rng.IntN(2) == 0 {
		ev := h.out[0]
		h.out = h.out[1:]
		s.learn(h, ev)
		s.note()
		s.step(ev)
		return
	}
	if !h.alive {
		if !h.tried {
			h.tried = true
			switch {
			case len(h.in) > 0: // it can only be DropHost
				h.out = append(h.out, elastic.HostLost{Host: h.id, Reason: "asked"})
				return
			case !s.power[h.name]:
				h.out = append(h.out, elastic.HostLost{Host: h.id, Reason: "no start"})
				return
			}
			h.alive = true
			h.out = append(h.out, elastic.HostUp{Host: h.id})
		}
		return
	}
	if len(h.in) > 0 {
		a := h.in[0]
		h.in = h.in[1:]
		switch a := a.(type) {
		case elastic.DropHost:
			s.gone(h, "asked")
		case elastic.Roster:
			h.roster = a
			for _, p := range s.procs {
				if p.host == h && p.running && !p.in(a.Places) && !p.in(a.Spares) {
					p.dying = true
				}
			}
		case elastic.Spares:
			if a.Epoch != h.roster.Epoch && h.roster.Epoch > 0 {
				return
			}
			for _, place := range a.Places {
				if p := s.procs[place.Process]; p.host == h && !p.running && !p.ended && !p.dying {
					p.running = true
				}
			}
			for _, p := range s.procs {
				if p.host == h && p.running && !p.in(a.Places) && !p.in(h.roster.Places) {
					p.dying = true
				}
			}
		case elastic.HostsChanged:
			h.news = max(h.news, a.Epoch)
		}
		return
	}
	if e := h.roster.Epoch; e > h.entered && slices.Contains(h.roster.Hosts(), h.id) {
		for _, id := range h.roster.Hosts() {
			if o := s.hosts[id]; o.entered < e && (!o.alive || o.roster.Epoch != e) {
				return
			}
		}
		h.entered = e
		for _, place := range h.roster.Places {
			p := s.procs[place.Process]
			if p.host != h {
				continue
			}
			if !p.running && !p.ended && !p.dying {
				p.running = true
			}
		}
		h.out = append(h.out, elastic.Committed{Host: h.id, Epoch: e})
	}
}

// in reports whether a process is in a list of places.
func (p *simProc) in(places []elastic.ProcessPlace) bool {
	return slices.ContainsFunc(places, func(q elastic.ProcessPlace) bool { return q.Process == p.place.Process })
}

// note counts the losses of all processes.
func (s *sim) note() {
	if s.elders == nil || slices.ContainsFunc(s.present(), func(n int) bool { return slices.Contains(s.elders, n) }) {
		return
	}
	if s.losses++; s.kept >= s.elderly.epoch || s.now-s.elderly.since >= 10*time.Minute {
		s.losses = 0
	}
	s.elders = nil
}

// present are the processes of the last roster that have not ended.
func (s *sim) present() (out []int) {
	if w := s.worlds[s.last]; w != nil {
		for _, p := range w.roster.Places {
			if !s.procs[p.Process].over {
				out = append(out, p.Process)
			}
		}
	}
	return out
}

func (s *sim) beginElders(present []int) {
	s.elders, s.elderly.since, s.elderly.epoch = present, s.now, s.last
}

// learn notes what the launcher now knows, for the checks.
func (s *sim) learn(h *simHost, ev elastic.Event) {
	switch ev := ev.(type) {
	case elastic.Exited:
		p := s.procs[ev.Process]
		p.over = true
		wanted := p.in(s.worlds[s.last].roster.Places) || p.in(s.spares)
		switch {
		case wanted && ev.Code == 0:
			s.exits++
		case wanted && !p.ranked && !p.known: // a spare that failed before init
		case wanted && s.policy.Blacklist == elastic.BlacklistHost:
			for slot := range 4 {
				if key := fmt.Sprintf("%s:%d", h.name, slot); s.free(key) {
					s.bar(key)
				} else if s.now >= s.barred[key] { // it may count or not
					s.slack[key] = s.now + s.policy.CooldownMax - s.barred[key]
				}
			}
		case wanted:
			s.bar(fmt.Sprintf("%s:%d", h.name, p.place.Slot))
		}
	case elastic.Rejoining:
		p := s.procs[ev.Process]
		p.known = p.known || ev.Epoch == 0
	case elastic.Kept:
		s.kept = max(s.kept, ev.Epoch)
	case elastic.HostLost:
		h.gone = true
		if h.met && !h.unwanted {
			s.excuse(h.name, ev.Silent)
		}
		for _, p := range s.procs {
			p.over = p.over || p.host == h
		}
		switch {
		case h.unwanted:
		case !h.met: // it has failed nothing
			s.tries[h.name]++
			first, most := time.Second, 8*time.Second
			switch {
			case ev.Refused:
				first, most = 30*time.Second, 10*time.Minute
			case ev.Alive || ev.Ended:
				most = 30 * time.Second
			}
			s.barred[h.name+"?"], s.slack[h.name+"?"] = s.now+min(first<<(s.tries[h.name]-1), most), first
		case s.policy.CooldownMin == 0:
			if s.counts[h.name]++; s.now-h.since >= 10*time.Minute {
				s.counts[h.name] = 1
			}
			first := time.Second
			switch {
			case ev.Ended:
				first = 5 * time.Second
			case ev.Alive:
				first = 30 * time.Second
			}
			s.barred[h.name], s.slack[h.name] = s.now+min(first<<(s.counts[h.name]-1), time.Hour), first
		default:
			s.bar(h.name)
		}
	case elastic.HostUp:
		h.met, h.since = true, s.now
		s.tries[h.name] = 0
		s.returns += min(s.counts[h.name], 1)
	}
}

// process lets a process do one thing.
func (s *sim) process(p *simProc) {
	h := p.host
	switch {
	case !p.running:
	case p.dying:
		s.exit(p, 143)
	case p.world == 0 && !p.in(h.roster.Places):
		if !p.loaded {
			p.loaded = true
			h.out = append(h.out, elastic.Rejoining{Process: p.place.Process})
		}
	case p.world == 0:
		if h.entered > p.left && h.entered == h.roster.Epoch {
			p.world = h.entered
			w := s.worlds[p.world]
			w.done = max(w.done, p.done)
		}
	case s.doomed:
		s.exit(p, 1)
	default:
		w := s.worlds[p.world]
		if p.place.Process == w.roster.Places[0].Process && h.news == p.world && w.commits > 0 {
			w.interrupted = true
		}
		broken, complete := w.interrupted || h.roster.Epoch > p.world, true
		for _, q := range w.roster.Places {
			other := s.procs[q.Process]
			broken = broken || other.left >= p.world || !other.running && other.host.entered >= p.world || !other.host.alive
			complete = complete && other.world == p.world
		}
		p.done = w.done
		switch {
		case w.done >= goal:
			s.exit(p, 0)
		case broken:
			p.left, p.world = p.world, 0
			h.out = append(h.out, elastic.Rejoining{Process: p.place.Process, Epoch: p.left})
		case complete:
			w.done++
			if w.commits++; h.kept < p.world {
				h.kept = p.world
				h.out = append(h.out, elastic.Kept{Host: h.id, Epoch: p.world})
			}
			for _, q := range w.roster.Places {
				s.procs[q.Process].synced = true
			}
		}
	}
}

// TestEverySchedule: whatever fails and whenever, every roster is right, and when nothing fails any
// more the job ends.
func TestEverySchedule(t *testing.T) {
	ends, returns, anew, excused, swaps := map[elastic.Cause]int{}, 0, 0, 0, 0
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 99))
		policy := elastic.Policy{MinNP: 1 + rng.IntN(2), ResetLimit: -1, Timeout: 60 * time.Second,
			OnFailure: elastic.OnFailure(rng.IntN(3)), Listed: rng.IntN(4) == 0, Blacklist: elastic.Blacklist(rng.IntN(2)), LossLimit: rng.IntN(4)}
		policy.NP = policy.MinNP + rng.IntN(2)
		if rng.IntN(2) == 0 {
			policy.MaxNP = policy.NP + rng.IntN(4)
		}
		if rng.IntN(3) > 0 {
			policy.CooldownMin, policy.CooldownMax = time.Second, 8*time.Second
		}
		if rng.IntN(8) == 0 {
			policy.ResetLimit = rng.IntN(4)
		}
		if seed%3 == 0 {
			policy.Spares = 1 + rng.IntN(2)
		}
		s := newSim(t, seed, policy, rng.IntN(12))
		s.run()
		ends[s.end.Cause]++
		if policy.CooldownMin == 0 {
			returns += s.returns
		}
		anew += s.anew
		excused += s.excused
		swaps += s.swaps
		if s.end.Cause == elastic.TooManyResets && policy.ResetLimit < 0 {
			s.fail("ended by a limit that there is not")
		}
	}
	t.Log(ends, returns, anew, excused, swaps)
	if swaps < 200 {
		t.Errorf("only %d spares entered a world", swaps)
	}
	if anew < 100 {
		t.Errorf("only %d worlds began after the loss of all processes", anew)
	}
	if returns < 60 {
		t.Errorf("only %d hosts returned without a cooldown", returns)
	}
	if excused < 100 {
		t.Errorf("only %d failures followed from the loss of a host", excused)
	}
	if ends[elastic.Finished] < 1000 {
		t.Errorf("only %d of 3000 jobs finished: the schedules are too hard to tell anything", ends[elastic.Finished])
	}
}

// TestDoomedJob: a script that fails wherever it runs ends the job soon, long before the elastic timeout, whatever the
// policy.
func TestDoomedJob(t *testing.T) {
	losses := map[int]int{}
	for seed := range uint64(1000) {
		rng := rand.New(rand.NewPCG(seed, 98))
		policy := elastic.Policy{MinNP: 1 + rng.IntN(3), ResetLimit: -1, Timeout: time.Hour, OnFailure: []elastic.OnFailure{elastic.Replace, elastic.Shrink}[rng.IntN(2)],
			Listed: rng.IntN(2) == 0, Blacklist: elastic.Blacklist(rng.IntN(2)), LossLimit: rng.IntN(4)}
		if rng.IntN(2) == 0 {
			policy.MaxNP = policy.MinNP
		}
		if rng.IntN(2) == 0 {
			policy.CooldownMin, policy.CooldownMax = time.Second, 8*time.Second
		}
		if seed%3 == 0 {
			policy.Spares = 1 + rng.IntN(2)
		}
		s := newSim(t, seed, policy, 0)
		s.doomed = true
		s.names, s.power["a"], s.power["b"], s.power["c"] = []string{"a", "b", "c"}, true, true, true
		s.listed["a"], s.listed["b"], s.listed["c"] = 1+rng.IntN(3), 1+rng.IntN(3), 1+rng.IntN(3)
		s.run()
		tooFew := policy.Listed && s.end.Cause == elastic.TooFew // before the last process has failed
		if !tooFew && s.end.Cause != elastic.ProcessFailed || s.end.Code != 1 || s.losses > s.policy.LossLimit && !s.unsure || s.now > 5*time.Minute {
			s.fail("the job ends after %v with %v and code %d; all processes were lost %d times", s.now, s.end.Cause, s.end.Code, s.losses)
		}
		losses[s.losses]++
	}
	t.Log(losses)
}

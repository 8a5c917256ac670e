package authority_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"gorun/rendezvous/authority"
	"gorun/rendezvous/wire"
)

const lease = 10 * time.Second

// machine is a host of the simulation: an elector, of which only what it saved survives, and perhaps a launcher.
type machine struct {
	name     string
	up       bool
	frozen   bool
	full     bool // its disk: it cannot save
	saved    authority.State
	elector  *authority.Elector
	launcher *launcher
}

// launcher counts epochs: its value is the number of the last one. It acts on a number when that was kept.
type launcher struct {
	*authority.Holder
	epoch    uint64            // decided last
	waits    map[uint64]uint64 // epochs by the number of the value
	inherits uint64            // number of the value it begins with; it acts on nothing before that was kept
	ready    bool              // it was
	changes  bool              // the electors have changed since that was last kept
}

type packet struct {
	from, to string
	message  wire.Message
	about    *wire.Keep // of an answer to it
}

// sim runs hosts over a network that loses, delays, duplicates and reorders, all from one seed.
type sim struct {
	t        *testing.T
	seed     uint64
	rng      *rand.Rand
	now      time.Duration
	names    []string
	hosts    map[string]*machine
	net      []packet
	cut      map[string]bool // hosts on the other side of a partition
	loss     float64
	first    []string          // electors
	leaders  map[uint64]string // by term
	acted    map[uint64]uint64 // term that acted on an epoch
	greatest uint64            // epoch that was acted on
	renews   bool              // launchers replace electors
	deserted []int             // how many electors were left, for each that gave the job up
	returned []string          // who has heard of it again
	unsaved  int               // what electors could not save
	renewed  int               // sets of electors that were kept
	between  int               // launchers that began with electors on which no majority had agreed yet, or of which one was not to stay
}

// newSim has n hosts, of which the first are electors.
func newSim(t *testing.T, seed uint64, n, electors int) *sim {
	s := &sim{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 7)), hosts: map[string]*machine{}, cut: map[string]bool{},
		loss: 0.2, leaders: map[uint64]string{}, acted: map[uint64]uint64{}}
	for i := range n {
		s.names = append(s.names, fmt.Sprint("h", i))
	}
	for _, name := range s.names {
		s.hosts[name] = &machine{name: name, up: true, elector: authority.NewElector(name, authority.State{}, 0)}
	}
	s.first = s.names[:electors]
	s.begin(s.hosts["h0"], authority.Snapshot{Electors: s.first})
	return s
}

func (s *sim) fail(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("seed %d, after %v: "+format, append([]any{s.seed, s.now}, args...)...)
}

// begin starts a launcher, which writes first of all.
func (s *sim) begin(m *machine, from authority.Snapshot) {
	l := &launcher{Holder: authority.NewHolder(m.name, "job", lease, from, s.now), waits: map[uint64]uint64{}}
	if from.Value != nil {
		l.epoch = binary.LittleEndian.Uint64(from.Value)
	}
	if other, dup := s.leaders[l.Term()]; dup {
		s.fail("%s and %s have both won term %d", other, m.name, l.Term())
	}
	s.leaders[l.Term()] = m.name
	if len(from.Electors)%2 == 0 {
		s.between++
	}
	l.inherits = l.Put(binary.LittleEndian.AppendUint64(nil, l.epoch), false)
	m.launcher = l
}

func (s *sim) send(p packet) {
	if s.cut[p.from] != s.cut[p.to] || s.rng.Float64() < s.loss {
		return
	}
	s.net = append(s.net, p)
	if s.rng.Float64() < s.loss {
		s.net = append(s.net, p)
	}
}

func (s *sim) step(m *machine, ev authority.Event) authority.Actions {
	a, err := m.elector.Take(s.now, ev, func(state authority.State) error {
		if m.full {
			s.unsaved++
			return errors.New("no space left on device")
		}
		m.saved = state
		return nil
	})
	if err != nil {
		return authority.Actions{}
	}
	for _, to := range a.Of {
		s.send(packet{from: m.name, to: to, message: a.Ask})
	}
	if a.QuorumLost > 0 {
		s.deserted = append(s.deserted, a.QuorumLost)
	}
	if a.QuorumBack {
		s.returned = append(s.returned, m.name)
	}
	if a.Lead != nil {
		s.begin(m, *a.Lead)
	}
	return a
}

// deliver gives a host a packet, which may be old.
func (s *sim) deliver(p packet) {
	m := s.hosts[p.to]
	if !m.up {
		return
	}
	var answer wire.Message
	var about *wire.Keep
	switch msg := p.message.(type) {
	case *wire.Keep:
		answer, about = s.step(m, msg).Answer, msg
	case *wire.Vote:
		answer = s.step(m, msg).Answer
	case *wire.Voted:
		s.step(m, authority.Voted{From: p.from, Voted: *msg})
	case *wire.Kept:
		if m.launcher != nil && m.launcher.Term() == p.about.Term { // one connection belongs to one launcher
			m.launcher.Answered(s.now, p.from, msg)
			s.act(m)
		}
	}
	if answer != nil {
		s.send(packet{from: p.to, to: p.from, message: answer, about: about})
	}
}

// act does what a launcher may do now.
func (s *sim) act(m *machine) {
	l := m.launcher
	if l.Superseded() {
		m.launcher = nil // it stands down
		return
	}
	if l.Kept() < l.inherits {
		return
	}
	if !l.ready {
		l.ready = true
		for epoch, term := range s.acted {
			if term < l.Term() && epoch > l.epoch {
				s.fail("term %d begins after epoch %d, but term %d has acted on epoch %d", l.Term(), l.epoch, term, epoch)
			}
		}
	}
	if l.changes && l.ElectorsAgreed() {
		l.changes = false
		s.renewed++
	}
	for seq, epoch := range l.waits {
		if seq > l.Kept() {
			continue
		}
		delete(l.waits, seq)
		if term, dup := s.acted[epoch]; dup {
			s.fail("terms %d and %d have both acted on epoch %d", term, l.Term(), epoch)
		}
		s.acted[epoch] = l.Term()
		s.greatest = max(s.greatest, epoch)
	}
}

// decide has a launcher want another epoch.
func (s *sim) decide(m *machine) {
	l := m.launcher
	if l.Kept() < l.inherits {
		return // it may not know the last one
	}
	l.epoch++
	l.waits[l.Put(binary.LittleEndian.AppendUint64(nil, l.epoch), false)] = l.epoch
}

// beat lets a second pass on a host.
func (s *sim) beat(m *machine) {
	if !m.up || m.frozen {
		return
	}
	if l := m.launcher; l != nil {
		lost := l.Lost(s.now)
		if s.renews && (len(lost) > 0 || len(l.Electors())%2 == 0 || s.rng.IntN(8) == 0) && l.Renew(s.now, s.spares(m)) {
			l.changes = true
		}
		for _, to := range l.Recipients() {
			next := l.Next(to)
			s.send(packet{from: m.name, to: to, message: next})
			if next.Value != nil && s.loss > 0 && s.rng.IntN(3) == 0 { // a sign of life while the value is under way
				beat := *next
				beat.Value = nil
				s.send(packet{from: m.name, to: to, message: &beat})
			}
		}
	}
	s.step(m, authority.Tick{LauncherGone: m.launcher == nil})
}

func (s *sim) second() {
	s.now += time.Second
	for _, name := range s.names {
		s.beat(s.hosts[name])
	}
	for n := len(s.net); n > 0 && len(s.net) > 0; n-- {
		i := s.rng.IntN(len(s.net))
		p := s.net[i]
		if s.hosts[p.to].frozen || s.loss > 0 && s.rng.Float64() < 0.3 {
			continue // later, perhaps much later
		}
		s.net = slices.Delete(s.net, i, i+1)
		s.deliver(p)
	}
}

// pass lets time pass.
func (s *sim) pass(d time.Duration) {
	for end := s.now + d; s.now < end; {
		s.second()
	}
}

// goesOn fails unless one launcher is there, and it can act. It returns that one's host.
func (s *sim) goesOn() *machine {
	s.t.Helper()
	all := s.speakers()
	if len(all) != 1 {
		s.fail("%d launchers speak: %v", len(all), all)
	}
	before := s.greatest
	s.decide(all[0])
	s.pass(5 * time.Second)
	if s.greatest <= before {
		s.fail("the launcher on %s, term %d, cannot act after epoch %d; its electors are %v", all[0].name, all[0].launcher.Term(), before, all[0].launcher.Electors())
	}
	return all[0]
}

// trouble is one fault, or the end of one.
func (s *sim) trouble() {
	m := s.hosts[s.names[s.rng.IntN(len(s.names))]]
	switch s.rng.IntN(9) {
	case 0, 1:
		m.up, m.launcher = false, nil // power is cut
	case 2, 3, 4:
		s.restore(m)
	case 5:
		m.launcher = nil // kill -9
	case 6:
		m.frozen = !m.frozen
	case 7:
		s.cut[m.name] = !s.cut[m.name]
	case 8:
		m.full = !m.full
	}
}

// spares are hosts that answer a launcher.
func (s *sim) spares(of *machine) (out []string) {
	for _, name := range s.names {
		if m := s.hosts[name]; m.up && !m.frozen && s.cut[name] == s.cut[of.name] {
			out = append(out, name)
		}
	}
	return out
}

// meddle has a launcher want other electors without a reason: any one goes or comes.
func (s *sim) meddle(m *machine) {
	l := m.launcher
	now, name := l.Electors(), s.names[s.rng.IntN(len(s.names))]
	next := slices.DeleteFunc(slices.Clone(now), func(x string) bool { return x == name })
	if len(next) == len(now) {
		l.Invite([]string{name})
		next = append(next, name)
	}
	l.changes = l.Change(next) || l.changes
}

// restore boots a host with what it saved.
func (s *sim) restore(m *machine) {
	m.frozen, m.full = false, false
	if !m.up {
		m.up = true
		m.elector = authority.NewElector(m.name, m.saved, s.now)
	}
}

func (s *sim) speakers() (out []*machine) {
	for _, name := range s.names {
		if m := s.hosts[name]; m.launcher != nil {
			out = append(out, m)
		}
	}
	return out
}

// known is how many of the first electors have heard of the job.
func (s *sim) known() (n int) {
	for _, name := range s.first {
		if s.hosts[name].saved.Job != "" {
			n++
		}
	}
	return n
}

// TestOneSpeaksAndGoesOn: whatever is lost, late, cut off, frozen, killed, rebooted or cannot be saved, while electors
// are replaced, with and without a reason, no two launchers have one term or act on one epoch, and each knows what
// those before it acted upon; and when all is well again exactly one is left, which can go on, and all of its electors
// live.
func TestOneSpeaksAndGoesOn(t *testing.T) {
	seeds := uint64(2000)
	if testing.Short() {
		seeds = 600
	}
	terms, epochs, sets, between, unsaved := 0, 0, 0, 0, 0
	for seed := range seeds {
		hosts := []int{1, 3, 4, 5, 6, 7}[seed%6]
		s := newSim(t, seed, hosts, []int{1, 3, 3, 3, 3, 5}[seed%6])
		s.renews = hosts > 1
		meddles := hosts > 1 && seed%4 < 2
		for s.now < 5*time.Minute {
			if s.rng.IntN(8) == 0 {
				s.trouble()
			}
			if all := s.speakers(); len(all) > 0 && s.rng.IntN(3) == 0 {
				s.decide(all[s.rng.IntN(len(all))])
			}
			if all := s.speakers(); meddles && len(all) > 0 && s.rng.IntN(4) == 0 {
				s.meddle(all[s.rng.IntN(len(all))])
			}
			s.second()
		}
		s.loss = 0
		clear(s.cut)
		for _, name := range s.names {
			s.restore(s.hosts[name])
		}
		s.pass(10 * lease)
		if len(s.leaders) == 1 && s.known() <= len(s.first)/2 {
			continue // it died before a majority had heard of it
		}
		if electors := s.goesOn().launcher.Electors(); len(electors)%2 == 0 && len(electors) < hosts {
			s.fail("an even number of electors: %v of %v", electors, s.names)
		}
		terms, epochs, sets, between, unsaved = terms+len(s.leaders), epochs+len(s.acted), sets+s.renewed, between+s.between, unsaved+s.unsaved
	}
	t.Logf("%d launchers acted on %d epochs, for %d sets of electors; %d of them began in the middle of a change, and electors could not save %d times", terms, epochs, sets, between, unsaved)
	if terms < int(seeds)*3 || sets < int(seeds)*3 || between < int(seeds)/4 || unsaved < int(seeds) {
		t.Errorf("only %d launchers, %d sets, %d in the middle, %d times not saved, in %d runs: the simulation does not disturb enough", terms, sets, between, unsaved, seeds)
	}
}

// TestMinorityWaits: a launcher cut off with fewer than half of the electors decides nothing more, and another takes
// over.
func TestMinorityWaits(t *testing.T) {
	s := newSim(t, 1, 3, 3)
	s.loss = 0
	s.pass(3 * time.Second)
	s.cut["h0"] = true
	s.decide(s.hosts["h0"])
	s.pass(4 * lease)
	if s.greatest != 0 || s.hosts["h0"].launcher == nil {
		t.Errorf("acted on epoch %d alone", s.greatest)
	}
	if all := s.speakers(); len(all) != 2 || all[1].name != "h1" {
		t.Fatalf("%d launchers", len(all))
	}
	s.decide(s.hosts["h1"])
	clear(s.cut)
	s.pass(3 * time.Second)
	if s.greatest != 1 || s.acted[1] != s.hosts["h1"].launcher.Term() || s.hosts["h0"].launcher != nil {
		t.Errorf("acted on epoch %d by term %d", s.greatest, s.acted[1])
	}
}

// TestKilledLauncherComesBackAtHome: its own host need not wait for the lease.
func TestKilledLauncherComesBackAtHome(t *testing.T) {
	s := newSim(t, 2, 3, 3)
	s.loss = 0
	s.pass(3 * time.Second)
	s.hosts["h0"].launcher = nil
	s.pass(3 * time.Second)
	if all := s.speakers(); len(all) != 1 || all[0].name != "h0" || all[0].launcher.Term() != 2 {
		t.Errorf("%d launchers after %v", len(all), s.now)
	}
}

// TestOverIsOver: no host carries on a job that has ended, not even one that was away when it did.
func TestOverIsOver(t *testing.T) {
	s := newSim(t, 3, 3, 3)
	s.loss = 0
	s.pass(3 * time.Second)
	s.cut["h2"] = true
	l := s.hosts["h0"].launcher
	last := l.Put([]byte("0: well8"), true)
	s.pass(2 * time.Second)
	if l.Kept() != last {
		t.Fatal("its end was not kept")
	}
	s.hosts["h0"].launcher = nil
	clear(s.cut)
	s.pass(5 * lease)
	if n := len(s.speakers()); n != 0 || len(s.leaders) != 1 {
		t.Errorf("%d launchers of a job that has ended, %d terms", n, len(s.leaders))
	}
}

// TestUnknownElectorsHaveNoVote: an elector that knows nothing of a job refuses, and so does one that has lost what it
// saved.
func TestUnknownElectorsHaveNoVote(t *testing.T) {
	e := authority.NewElector("h1", authority.State{}, 0)
	a := e.Step(time.Hour, &wire.Vote{Job: "job", Term: 9, Candidate: "h2"})
	if v, ok := a.Answer.(*wire.Voted); !ok || v.Granted || a.Save {
		t.Errorf("%+v", a)
	}
	a = e.Step(time.Hour, &wire.Keep{Job: "job", Term: 1, Seq: 1, Electors: []string{"h1"}})
	if k, ok := a.Answer.(*wire.Kept); !ok || k.Term != 1 || k.Seq != 0 || e.State().Job != "" {
		t.Errorf("a sign of life before any value: %+v, %+v", a, e.State())
	}
}

// TestSlowVotes: a host becomes the launcher by votes that take longer to bring their value than the lease, and the voter leaves it the time.
func TestSlowVotes(t *testing.T) {
	state := authority.State{Job: "job", Lease: 3 * time.Second, Promised: 1, Term: 1, Seq: 1, Holder: "a", Electors: []string{"a", "b", "c"}, Value: make([]byte, 800_000)}
	b, c := authority.NewElector("b", state, 0), authority.NewElector("c", state, 0)
	votes := map[time.Duration]*wire.Voted{} // by when they arrive
	for now := time.Duration(0); now < 40*time.Second; now += time.Second / 4 {
		if a := c.Step(now, authority.Tick{}); a.Ask != nil {
			t.Fatalf("after %v the voter stands, too", now)
		}
		asked := b.Step(now, authority.Tick{})
		if v := votes[now]; v != nil {
			delete(votes, now)
			if a := b.Step(now, authority.Voted{From: "c", Voted: *v}); a.Lead != nil {
				return
			} else if a.Ask != nil {
				asked = a
			}
		}
		if asked.Ask == nil || len(votes) > 0 {
			continue
		}
		v := c.Step(now, asked.Ask).Answer.(*wire.Voted)
		at := now + time.Second/4
		if v.Value != nil {
			at = now + 22*time.Second
		}
		votes[at] = v
	}
	t.Error("the votes count for nothing")
}

// TestLongerLease: hosts turn out to have vGPUs once they are there, and then the launcher may be silent for longer as
// well. A lease does not become shorter again: the launcher that takes over does not know of all hosts at first.
func TestLongerLease(t *testing.T) {
	electors := []string{"a", "b", "c"}
	h := authority.NewHolder("a", "job", 30*time.Second, authority.Snapshot{Electors: electors}, 0)
	e := authority.NewElector("b", authority.State{}, 0)
	give := func(now time.Duration) {
		t.Helper()
		a := e.Step(now, h.Next("b"))
		if !a.Save {
			t.Error("it is not saved")
		}
	}
	stands := func(now time.Duration) bool {
		return e.Step(now, authority.Tick{}).Ask != nil
	}
	h.Put([]byte("v"), false)
	give(0)
	for _, lease := range []time.Duration{120 * time.Second, 30 * time.Second} {
		h.Extend(lease)
		h.Put([]byte("v"), false)
		give(time.Second)
		if got := e.State().Lease; got != 120*time.Second {
			t.Errorf("the lease is %v", got)
		}
	}
	vote := &wire.Vote{Job: "job", Candidate: "c", Term: 2}
	if e.Step(100*time.Second, vote).Answer.(*wire.Voted).Granted || stands(100*time.Second) {
		t.Error("the launcher is given up before its lease ends")
	}
	if !stands(200 * time.Second) {
		t.Error("the launcher is not given up")
	}
}

// TestDeserted: an elector that is left with too few others reports it, once, when the hosts of the job have waited
// long enough; not to a majority, and a launcher that comes all the same when they return takes that back.
func TestDeserted(t *testing.T) {
	s := newSim(t, 4, 5, 5)
	s.loss = 0
	s.pass(3 * time.Second)
	for _, name := range s.names[:3] {
		s.hosts[name].up, s.hosts[name].launcher = false, nil
	}
	last := s.now
	for s.now < last+lease+2*authority.SuccessionTimeout {
		s.second()
		if s.deserted != nil && s.now < last+lease+authority.SuccessionTimeout {
			s.fail("%v give the job up", s.deserted)
		}
	}
	if !slices.Equal(s.deserted, []int{2, 2}) {
		t.Errorf("those who give the job up see %v, want 2 of 5 each", s.deserted)
	}
	if s.returned != nil {
		t.Errorf("%v take back what they may have said before they began, or said of a job that is lost", s.returned)
	}
	s.restore(s.hosts["h0"])
	s.pass(10 * lease)
	if all := s.speakers(); len(all) != 1 || all[0].launcher.Term() != 2 || len(s.deserted) != 2 {
		t.Errorf("%d launchers, %v give the job up", len(all), s.deserted)
	}
	slices.Sort(s.returned)
	if want := []string{"h0", "h3", "h4"}; !slices.Equal(s.returned, want) { // h0 does not know what it sent before it was restored
		t.Errorf("%v take back that the job was deserted, want %v, once each", s.returned, want)
	}
}

// TestOneLossAfterTheOther: hosts are lost for good one by one, the launcher's first, as long as two are left; each
// time the electors are replaced before the next one goes.
func TestOneLossAfterTheOther(t *testing.T) {
	for _, c := range []struct {
		hosts, electors int
		last            int // who can be left of them and go on
	}{{3, 3, 2}, {4, 3, 2}, {6, 3, 2}, {5, 5, 2}, {9, 5, 2}} {
		s := newSim(t, 5, c.hosts, c.electors)
		s.loss, s.renews = 0, true
		for left := c.hosts; left >= c.last; left-- {
			s.pass(6 * lease)
			m := s.goesOn()
			m.up, m.launcher = false, nil
		}
		s.pass(6 * lease)
		if n := len(s.speakers()); n != 0 {
			t.Errorf("of %d hosts one is left, and speaks for the job", c.hosts)
		}
	}
}

// TestOneComesBackWhileAnotherGoes: an elector is paused for longer than the lease and comes back, and another one is
// lost for good at any moment around: all but one live, and the job goes on.
func TestOneComesBackWhileAnotherGoes(t *testing.T) {
	for seed := range uint64(300) {
		for _, hosts := range []int{4, 6} {
			s := newSim(t, seed, hosts, 3)
			s.loss, s.renews = 0, true
			s.pass(3 * time.Second)
			s.hosts["h1"].frozen = true
			s.pass(lease - 2*time.Second + time.Duration(seed%12)*time.Second)
			s.hosts["h1"].frozen = false
			s.hosts["h2"].up = false
			s.pass(10 * lease)
			if electors := s.goesOn().launcher.Electors(); len(electors)%2 == 0 || slices.Contains(electors, "h2") {
				s.fail("its electors are %v", electors)
			}
		}
	}
}

// TestElectorsComeBack: of five, two are lost and no host can take their place: three are left that need two. When they
// are back they are electors again, and one that had no part in that asks whether it still is one, without disturbing
// any.
func TestElectorsComeBack(t *testing.T) {
	s := newSim(t, 6, 5, 5)
	s.loss, s.renews = 0, true
	s.pass(3 * time.Second)
	s.hosts["h3"].up, s.hosts["h4"].up = false, false
	s.pass(3 * lease)
	l := s.hosts["h0"].launcher
	if got := l.Electors(); !slices.Equal(got, []string{"h0", "h1", "h2"}) {
		t.Fatalf("electors %v", got)
	}
	s.renews = false
	s.restore(s.hosts["h3"])
	s.pass(10 * lease)
	if s.hosts["h0"].launcher != l || len(s.leaders) != 1 || s.deserted != nil {
		t.Errorf("an elector of former times disturbs: %d launchers, %v give the job up", len(s.leaders), s.deserted)
	}
	s.renews = true
	s.restore(s.hosts["h4"])
	s.pass(2 * lease)
	if got := l.Electors(); !slices.Equal(got, []string{"h0", "h1", "h2", "h3", "h4"}) || !l.ElectorsAgreed() {
		t.Errorf("electors %v", got)
	}
}

// TestChangesOneAtATime: the next set of electors waits until the one before was kept, differs from it by one, and the
// launcher's own term has begun.
func TestChangesOneAtATime(t *testing.T) {
	abc := []string{"a", "b", "c"}
	h := authority.NewHolder("a", "job", lease, authority.Snapshot{Term: 2, Seq: 7, Electors: abc}, 0)
	kept := func(electors ...string) {
		for _, name := range electors {
			h.Answered(0, name, &wire.Kept{Term: 2, Seq: h.Next(name).Seq})
		}
	}
	abcd := append(abc, "d")
	h.Invite([]string{"d"})
	if got := h.Recipients(); !slices.Equal(got, abcd) {
		t.Errorf("%v are told", got)
	}
	if h.Change(abcd) {
		t.Error("electors change in a term that nobody knows of")
	}
	h.Put([]byte("v"), false)
	if kept("a"); h.Change(abcd) {
		t.Error("electors change in a term that a minority knows of")
	}
	kept("b")
	for _, wrong := range [][]string{nil, abc, {"a"}, {"a", "b", "d"}, {"a", "b", "c", "d", "e"}, {"a", "d"}} {
		if h.Change(wrong) {
			t.Errorf("electors change from %v to %v in one step", abc, wrong)
		}
	}
	if h.Change(abcd) {
		t.Error("one becomes an elector that does not know the job")
	}
	if kept("d"); !h.Change(abcd) {
		t.Fatal("electors cannot change")
	}
	if kept("a", "b"); h.ElectorsAgreed() || h.Change(abc) {
		t.Error("two of four have agreed on the four")
	}
	if kept("d"); !h.ElectorsAgreed() || !h.Change(append([]string{"a"}, "c", "d")) {
		t.Error("three of four have not agreed on the four")
	}
	h.Answered(0, "c", &wire.Kept{Term: 3})
	if h.ElectorsAgreed() || h.Change([]string{"a", "c"}) {
		t.Error("a launcher that is one no more has its electors replaced")
	}
}

// holderOfThree is a launcher on a, whose electors are a, b and c. pass lets time pass, in which these answer, and
// returns who is lost then.
func holderOfThree(now *time.Duration) (h *authority.Holder, pass func(d time.Duration, answering ...string) (lost []string)) {
	h = authority.NewHolder("a", "job", lease, authority.Snapshot{Electors: []string{"a", "b", "c"}}, 0)
	h.Put([]byte("v"), false)
	return h, func(d time.Duration, answering ...string) (lost []string) {
		for end := *now + d; *now < end; {
			*now += time.Second
			for _, name := range answering {
				h.Answered(*now, name, &wire.Kept{Term: 1, Seq: h.Next(name).Seq})
			}
			lost = h.Lost(*now)
		}
		return lost
	}
}

// TestPausedLauncherSuspectsNone: a launcher that was away, or alone, takes no host for lost before it could have heard
// them for a lease.
func TestPausedLauncherSuspectsNone(t *testing.T) {
	now := time.Duration(0)
	_, pass := holderOfThree(&now)
	if lost := pass(3*lease, "a"); lost != nil {
		t.Errorf("one that is alone takes %v for lost", lost)
	}
	if lost := pass(lease-time.Second, "a", "b"); lost != nil {
		t.Errorf("%v is lost %v after the launcher was back", lost, lease-time.Second)
	}
	now += time.Hour // it is paused
	if lost := pass(lease-time.Second, "a", "b"); lost != nil {
		t.Errorf("%v is lost %v after the launcher went on", lost, lease-time.Second)
	}
	if lost := pass(2*time.Second, "a", "b"); !slices.Equal(lost, []string{"c"}) {
		t.Errorf("%v is lost, want c", lost)
	}
}

// TestRenewed: a host that answers comes before one that is lost goes, and who is lost is asked when that is decided:
// one that was lost a moment ago and is back stays. A spare host becomes an elector only while it answers.
func TestRenewed(t *testing.T) {
	now := time.Duration(0)
	h, pass := holderOfThree(&now)
	expect := func(changes bool, want ...string) {
		t.Helper()
		if h.Renew(now, []string{"d"}) != changes || !slices.Equal(h.Electors(), want) {
			t.Errorf("after %v the electors are %v, want %v", now, h.Electors(), want)
		}
	}
	pass(time.Second, "a", "b", "c", "d")
	if lost := pass(lease, "a", "b"); !slices.Equal(lost, []string{"c"}) {
		t.Fatalf("%v is lost, want c", lost)
	}
	expect(false, "a", "b", "c")
	pass(time.Second, "a", "b", "d")
	expect(true, "a", "b", "c", "d")
	pass(time.Second, "a", "b", "d")
	pass(lease, "a", "c", "d") // c is back, and b is gone
	expect(true, "a", "c", "d")
	pass(time.Second, "a", "c")
	if !h.ElectorsAgreed() {
		t.Error("two of three have not agreed on the three")
	}
}

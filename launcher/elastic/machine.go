package elastic

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Machine is the state of a job. The zero value is not usable.
type Machine struct {
	cfg       Config
	now       time.Duration
	out       []Action
	sites     []*site // in the order in which discovery first named them
	daemons   []*daemon
	processes []*process

	world     []*process // of the present epoch, by rank
	epoch     uint32
	committed bool
	broken    string   // why the present world must end; "" while it may go on
	asked     *process // the first to leave its world after an error: those of the others are often that it has left
	first     *End     // the first failure since a world was whole; those after it are often its consequence
	finished  bool     // a process has exited with 0
	resets    int
	kept      uint32 // the last epoch in which a process committed its state
	turnover  turnover
	start     start
	began     time.Duration // the present world
	anew      int           // how many worlds in a row began with the members of the one before, and did not last

	waiting bool          // for slots
	since   time.Duration // when that began
	fewTold bool          // that they are for the first world
	stamp   uint64
	told    string // the members that the present world last heard of
	ended   bool
}

// site is a host by name: what discovery reports of it, and why it may not be used.
type site struct {
	name   string
	slots  int          // 0 when it is not listed
	born   int64        // as discovered last
	daemon *daemon      // that has not ended
	never  *daemon      // that has, and was never up: nobody has heard of it, so its id is given again
	met    bool         // it was up before
	lost   ban          // since it was up
	unmet  ban          // since it could not be reached, or begun
	noted  []string     // why it could not be used since it was up, as the user was notified
	failed map[int]*ban // by slot; with BlacklistHost only the first, which stands for all
}

type state int

const (
	starting state = iota
	up
	dropped // it was sent the order to stop
	gone
)

type daemon struct {
	id     int
	site   *site
	born   int64         // of the site when it was started
	since  time.Duration // when it was up
	state  state
	member bool // of the present epoch
	failed bool // it cannot take part any more, by its own report or by those of others
	// entered is true once it has been in a world.
	entered bool
	used    map[int]*process
}

type process struct {
	number, slot int
	host         *daemon
	started      bool
	exited       bool
	ok           bool   // exited with 0
	dismissed    bool   // no longer wanted
	since        uint32 // the first epoch that it was in
	left         uint32 // the last epoch whose world it has left
	why          string // the first of the errors that it last heard there
}

// New returns the machine of a job whose policy has passed Check.
func New(cfg Config) *Machine { return &Machine{cfg: cfg} }

// Step takes an event and returns what to do about it. now is the time since some fixed moment.
func (m *Machine) Step(now time.Duration, ev Event) []Action {
	if m.ended {
		return nil
	}
	m.now = now
	if m.epoch == 0 && !m.waiting {
		m.waiting, m.since = true, now
		m.limitStart()
	}
	m.take(ev)
	if m.fixed() {
		m.decideFixed()
	} else {
		m.decide()
	}
	out := m.out
	m.out = nil
	return out
}

// take notes what happened.
func (m *Machine) take(ev Event) {
	switch ev := ev.(type) {
	case Discovered:
		if m.discovered(ev.Hosts); m.fixed() {
			m.startHosts()
		}
	case HostUp:
		if d := m.daemon(ev.Host); d != nil && d.state == starting {
			d.state, d.since = up, m.now
			d.site.met, d.site.unmet, d.site.noted = true, ban{}, nil
		}
	case HostEvicted:
		if d := m.daemon(ev.Host); d != nil && d.state != gone {
			m.evicted(d, ev)
		}
	case HostLost:
		if d := m.daemon(ev.Host); d != nil && d.state != gone {
			m.hostLost(d, ev)
		}
	case StartFailed:
		for _, id := range ev.Hosts {
			m.hostFails(m.daemons[id], "its start takes too long")
		}
		if m.fixed() && m.start.Failing && !m.ended {
			m.endFailed()
		}
	case Started:
		if p := m.process(ev.Process); p != nil {
			p.started = true
		}
	case Wanted:
		m.form()
	case Exited:
		if p := m.process(ev.Process); p != nil && !p.exited {
			m.exited(p, ev)
		}
	case Rejoining:
		if p := m.process(ev.Process); p != nil && ev.Epoch <= m.epoch && ev.Epoch > p.left {
			p.left, p.why = ev.Epoch, ev.Why
			if m.asked == nil && p.why != "" && p.left == m.epoch {
				m.asked = p
			}
		}
	case Kept:
		if m.daemon(ev.Host) != nil && ev.Epoch <= m.epoch {
			m.kept = max(m.kept, ev.Epoch)
		}
	case Interrupted:
		if m.broken == "" && m.epoch > 0 {
			m.broken = ev.Why
		}
	case Committed:
		m.entered(ev)
	}
}

func (m *Machine) entered(ev Committed) {
	d := m.daemon(ev.Host)
	if d == nil || ev.Epoch != m.epoch {
		return
	}
	d.entered, m.committed = true, true
	if m.broken == "" && !m.start.Failing {
		m.first = nil
	}
}

func (m *Machine) daemon(id int) *daemon {
	if id < 0 || id >= len(m.daemons) {
		return nil
	}
	return m.daemons[id]
}

func (m *Machine) process(number int) *process {
	if number < 0 || number >= len(m.processes) {
		return nil
	}
	return m.processes[number]
}

func (m *Machine) emit(a Action) { m.out = append(m.out, a) }

// discovered takes a new list of hosts.
func (m *Machine) discovered(list []Host) {
	slots, born := map[string]int{}, map[string]int64{}
	for _, h := range list {
		born[h.Name] = h.Born
		if _, known := slots[h.Name]; !known && !m.known(h.Name) {
			m.sites = append(m.sites, &site{name: h.Name, failed: map[int]*ban{}})
		}
		slots[h.Name] += h.Slots
	}
	for _, s := range m.sites {
		s.slots = max(slots[s.name], 0)
		if b := born[s.name]; b != 0 && b != s.born {
			s.born, s.lost, s.unmet = b, ban{}, ban{}
			clear(s.failed)
		}
		if s.slots > 0 {
			continue
		}
		s.unmet = ban{} // whatever is offered under this name later is taken for another host
		if m.cfg.CooldownMin == 0 {
			s.lost = ban{}
		}
		for _, b := range s.failed {
			b.forever = false
		}
		if s.daemon != nil && !s.daemon.member {
			m.drop(s.daemon)
		}
	}
}

func (m *Machine) known(name string) bool {
	for _, s := range m.sites {
		if s.name == name {
			return true
		}
	}
	return false
}

func (m *Machine) drop(d *daemon) {
	if d.state < dropped {
		d.state, d.member = dropped, false
		m.emit(DropHost{d.id})
	}
}

func (m *Machine) hostLost(d *daemon, ev HostLost) {
	asked, unmet := d.state == dropped, d.state == starting
	d.state, d.site.daemon = gone, nil
	for _, p := range d.used {
		p.exited = true
	}
	clear(d.used)
	if unmet {
		d.site.never = d
	}
	switch {
	case asked:
		return
	case m.fixed():
		m.hostFails(d, ev.Reason)
		return
	case !unmet:
		m.emit(GoesOnWithout{d.id, ev.Reason})
	case !slices.Contains(d.site.noted, ev.Reason): // it may be tried again and again
		d.site.noted = append(d.site.noted, ev.Reason)
		m.emit(Note{fmt.Sprintf("%s cannot be used: %s", d.site.name, ev.Reason)})
	}
	if d.born == d.site.born {
		m.bar(d, unmet, ev)
	}
	if d.member {
		d.member = false
		why := fmt.Sprintf("host %s was lost: %s", d.site.name, ev.Reason)
		m.failed(End{Cause: HostFailed, Process: -1, Host: d.id, Why: why})
	}
}

// evicted gives up a host whose daemon still lives, or may. Where the job ends with it, a daemon that can be reached
// stops its processes as at any other end.
func (m *Machine) evicted(d *daemon, ev HostEvicted) {
	first := !d.failed
	if m.fixed() {
		m.hostFails(d, ev.Reason)
	} else {
		d.failed = true
	}
	if first && !(m.fixed() && ev.Own) {
		m.emit(HangUp{d.id})
	}
}

// barred is true for a host that is not to be used yet.
func (s *site) barred(now time.Duration) bool { return s.lost.holds(now) || s.unmet.holds(now) }

func (m *Machine) exited(p *process, ev Exited) {
	if p.host.failed && !m.fixed() {
		return // a consequence: it counts as lost with its host
	}
	p.started, p.exited = true, true
	delete(p.host.used, p.slot)
	why := fmt.Sprintf("process %d on %s exited with code %d", p.number, p.host.site.name, ev.Code)
	failure := End{Cause: ProcessFailed, Process: p.number, Host: p.host.id, Code: ev.Code, Why: why}
	switch {
	case m.start.Failing: // a consequence
		return
	case m.fixed() && ev.Asked:
		m.hostFails(p.host, "its daemon has stopped its processes")
		return
	case m.fixed() && ev.Code != 0:
		m.end(failure)
		return
	case ev.Code != 0 && !ev.Asked:
		m.emit(ProcessLost{p.number})
	}
	switch {
	case p.dismissed: // it was stopped
	case ev.Code == 0:
		p.ok, m.finished = true, true
	default:
		m.suspect(p.host.site, p.slot)
		m.failed(failure)
	}
}

// failed notes the end of the present world.
func (m *Machine) failed(e End) {
	if m.first == nil {
		m.first = &e
	}
	if m.broken == "" {
		m.broken = e.Why
	}
}

// decide does what the facts now call for.
func (m *Machine) decide() {
	m.startHosts()
	m.countTurnover()
	switch {
	case m.epoch == 0:
		m.begin()
	case m.finished && len(m.live()) == 0:
		m.allGone()
	case m.failsEverywhere():
		m.emit(Note{fmt.Sprintf("all processes were lost, as often as --loss-limit %d allows, and none had committed anything",
			m.cfg.LossLimit)})
		m.allGone()
	case m.broken != "":
		m.resume(m.broken)
	case m.allLeft():
		m.resume("")
	case m.committed:
		m.tell()
	}
}

// startHosts sees to it that every host that can be used has a daemon, spare ones too: they are warm
// when they are needed.
func (m *Machine) startHosts() {
	for _, s := range m.sites {
		if s.daemon != nil || s.barred(m.now) || m.finished {
			continue
		}
		usable := false
		for slot := range s.slots {
			usable = usable || !m.bad(s, slot)
		}
		if usable {
			if s.daemon, s.never = s.never, nil; s.daemon == nil {
				s.daemon = &daemon{id: len(m.daemons), site: s, used: map[int]*process{}}
				m.daemons = append(m.daemons, s.daemon)
			}
			s.daemon.state, s.daemon.born, s.daemon.failed = starting, s.born, false
			m.emit(StartHost{s.daemon.id, s.name})
		}
	}
}

// live returns the processes of the present world that have not ended.
func (m *Machine) live() []*process {
	var out []*process
	for _, p := range m.world {
		if !p.exited {
			out = append(out, p)
		}
	}
	return out
}

func (m *Machine) allLeft() bool {
	for _, p := range m.live() {
		if p.left < m.epoch {
			return false
		}
	}
	return true
}

// allGone ends a job when no process of it goes on.
func (m *Machine) allGone() {
	for _, p := range m.world {
		if !p.ok {
			e := End{Cause: ProcessFailed, Process: p.number, Host: p.host.id, Why: "no process is left"}
			if m.first != nil {
				e = *m.first
			}
			m.end(e)
			return
		}
	}
	m.end(End{Cause: Finished, Process: -1, Host: -1})
}

// begin makes the first world.
func (m *Machine) begin() {
	free := m.free()
	pending := 0
	for _, s := range m.sites {
		if s.daemon != nil && s.daemon.state == starting && s.unmet.failures == 0 {
			pending++
		}
	}
	if len(free) < m.cfg.NP || m.cfg.Ranks != nil && pending > 0 {
		if m.wait(m.cfg.NP, len(free)); pending == 0 && m.now-m.since >= settle {
			m.waitsToBegin(len(free))
		}
		return
	}
	if pending > 0 && (m.cfg.MaxNP == 0 || len(free) < m.cfg.MaxNP) && m.now-m.since < settle {
		return
	}
	m.roster(nil, m.firstSlots(free), "")
}

// waitsToBegin notes, once, that no host is on its way which would make a first world whole.
func (m *Machine) waitsToBegin(have int) {
	if !m.ended && !m.fewTold {
		m.fewTold = true
		m.emit(Note{fmt.Sprintf("%d of %d slots are there: waiting up to %v for more", have, m.cfg.NP, m.cfg.Timeout)})
	}
}

// resume makes the next world, or waits until it can.
func (m *Machine) resume(reason string) {
	need := m.need()
	wish := need
	expired := m.waiting && m.now-m.since >= m.cfg.Timeout
	if m.broken != "" && m.cfg.OnFailure == Wait && !expired && !m.finished {
		wish = max(need, len(m.world))
		if m.cfg.Listed {
			wish = max(need, min(wish, m.possible()))
		}
	}
	// A process that has just begun has nothing yet, and may be dead already without our knowing. So those on
	// withdrawn hosts go only from a world that was notified and left as a whole, at a commit: not after a failure.
	keep, add := m.next(wish, m.broken == "" || m.cfg.OnFailure != Shrink, m.broken == "" && m.told != "")
	if have := len(keep) + len(add); have < wish {
		m.wait(wish, have)
		return
	}
	switch {
	case reason == "":
		reason = m.changes(keep, add)
	case len(keep) == 0:
		reason += ", and no process of before is left: training goes on from what the script loads"
	}
	if m.broken != "" || len(add) > 0 || len(keep) < len(m.world) || m.now-m.began >= lastsWell {
		m.anew = 0
	} else if m.now-m.began < anewPause(m.anew) {
		return
	}
	if m.anew++; m.anew == anewTold {
		m.emit(Note{"the ranks have begun anew again and again, though nobody was lost: is there an error that the script catches?"})
	}
	if m.spent() {
		e := End{Cause: TooManyResets, Process: -1, Host: -1}
		if m.first != nil {
			e.Process, e.Host, e.Code = m.first.Process, m.first.Host, m.first.Code
		}
		e.Why = fmt.Sprintf("the reset limit of %d is reached: %s", m.cfg.ResetLimit, reason)
		m.end(e)
		return
	}
	m.resets++
	m.roster(keep, add, reason)
}

const (
	// lastsWell is how long a world lasts whose end is not another one of the same kind as those before it.
	lastsWell = 10 * time.Second
	// anewAtOnce is how many worlds with the same members may follow each other at once, anewTold after how many users
	// hear of it.
	anewAtOnce, anewTold = 4, 8
)

// anewPause is how long a world is there at least that so many others went before with the same members: one that an
// error ends each time would otherwise be made a hundred times a second.
func anewPause(before int) time.Duration {
	if before < anewAtOnce {
		return 0
	}
	return min(50*time.Millisecond<<min(before-anewAtOnce, 10), time.Second)
}

// spent is true when no world may follow any more.
func (m *Machine) spent() bool { return m.cfg.ResetLimit >= 0 && m.resets >= m.cfg.ResetLimit }

// changes describes what is different in the next world when nothing went wrong in this one.
func (m *Machine) changes(keep []*process, add []slot) string {
	var kept, joined, grew, shrank, left []string
	note := func(names *[]string, d *daemon) {
		if !slices.Contains(*names, d.site.name) {
			*names = append(*names, d.site.name)
		}
	}
	for _, p := range keep {
		note(&kept, p.host)
	}
	for _, s := range add {
		if slices.Contains(kept, s.host.site.name) {
			note(&grew, s.host)
		} else {
			note(&joined, s.host)
		}
	}
	for _, p := range m.live() {
		switch here := p.host.site.name; {
		case slices.Contains(kept, here):
			if !slices.Contains(keep, p) {
				note(&shrank, p.host)
			}
		case !slices.Contains(joined, here):
			note(&left, p.host)
		}
	}
	var said []string
	for _, change := range []struct {
		names []string
		what  string
	}{{joined, "joined"}, {grew, "gained slots"}, {shrank, "lost slots"}, {left, "left"}} {
		if len(change.names) > 0 {
			said = append(said, strings.Join(change.names, ", ")+" "+change.what)
		}
	}
	if said == nil {
		if p := m.asked; p != nil {
			return fmt.Sprintf("every process asked for another world, process %d after an error: %s", p.number, p.why)
		}
		return "every process asked for another world"
	}
	return strings.Join(said, " and ")
}

// wait notes that slots are missing, and gives up when that has lasted too long or can only last.
func (m *Machine) wait(need, have int) {
	usedUp := m.usedUp()
	hopeless := usedUp || m.cfg.Listed && m.possible() < m.need()
	if !m.waiting {
		m.waiting, m.since = true, m.now
		if !hopeless {
			m.emit(Note{fmt.Sprintf("%s; %d of %d slots are there: waiting up to %v for more", m.broken, have, need, m.cfg.Timeout)})
		}
	}
	if usedUp || hopeless && m.epoch > 0 && len(m.live()) == 0 {
		if usedUp && m.cfg.Blacklist == BlacklistHost {
			m.emit(Note{"a process has failed on every host, and --blacklist host uses none of them again"})
		}
		m.allGone()
		return
	}
	over := m.cfg.Timeout > 0 && m.now-m.since >= m.cfg.Timeout
	if !hopeless && !over {
		return
	}
	e := End{Cause: TooFew, Process: -1, Host: -1}
	e.Why = fmt.Sprintf("slots needed: %d, there after %[3]v: %[2]d", need, have, m.cfg.Timeout)
	if hopeless {
		e.Why = fmt.Sprintf("slots needed: %d, of use: %d", need, m.possible())
	}
	if m.first != nil {
		e.Process, e.Host, e.Code = m.first.Process, m.first.Host, m.first.Code
		e.Why += ", after " + m.first.Why
	}
	m.end(e)
}

// tell notifies the processes that other members are to be had, once for each such set of members.
func (m *Machine) tell() {
	keep, add := m.next(m.need(), true, true)
	removed := len(keep) < len(m.live())
	tooFew := len(keep)+len(add) < m.need()                 // those on a host that was blacklisted have yet to be replaced
	if tooFew || !removed && (len(add) == 0 || m.spent()) { // a host that is back is no reason to end the job
		m.told = ""
		return
	}
	if who := members(keep, add); who != m.told {
		m.told = who
		m.stamp++
		m.emit(HostsChanged{Epoch: m.epoch, Added: len(add) > 0, Removed: removed, Stamp: m.stamp})
	}
}

func (m *Machine) end(e End) {
	m.ended = true
	m.emit(e)
}

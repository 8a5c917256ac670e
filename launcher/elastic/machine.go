package elastic

import (
	"fmt"
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
	asked     *process // the first to leave its world after an error; the errors of the others are often a consequence
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
	never  *daemon      // that has, and was never up: no host knows it, so its id is given again
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
	failed bool // it cannot take part any more, as it or others reported
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
		m.offer()
	}
}

func (m *Machine) emit(a Action) { m.out = append(m.out, a) }

func (m *Machine) end(e End) {
	m.ended = true
	m.emit(e)
}

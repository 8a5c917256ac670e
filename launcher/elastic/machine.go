package elastic

import "time"

// Machine is the state of a job. The zero value is not usable.
type Machine struct {
	cfg       Config
	rules     rules
	job       jobState
	out       []Action
	sites     []*site // in the order in which discovery first named them
	daemons   []*daemon
	processes []*process
	world     []*process // of the present epoch, by rank

	// Snapshots leave these out.
	asked         *process      // the first to leave its world after an error; the errors of the others are often a consequence
	began         time.Duration // the present world
	anew          int           // how many worlds in a row began with the members of the one before, and did not last
	shortageNoted bool          // the user has read that slots are missing for the first world
	sparesNoted   bool          // the user has read that slots are missing for spares
}

// jobState is how far the job has come, as a snapshot encodes it.
type jobState struct {
	Now       time.Duration `json:"now"` // of the last Step
	Epoch     uint32        `json:"epoch"`
	Committed bool          `json:"committed"` // a host has entered the present world
	Broken    string        `json:"broken"`    // why the present world must end; "" while it may go on
	First     *End          `json:"first"`     // the first failure since a world was whole; those after it are often its consequence
	Finished  bool          `json:"finished"`  // a process has exited with 0
	Resets    int           `json:"resets"`
	Kept      uint32        `json:"kept"` // the last epoch in which a process committed its state
	Turnover  turnover      `json:"turnover"`
	Start     start         `json:"start"`
	Waiting   bool          `json:"waiting"` // for slots
	Since     time.Duration `json:"since"`   // when that began
	Stamp     uint64        `json:"stamp"`
	Offered   string        `json:"told"`              // the members of the next world, as processes were last notified
	NoSpares  bool          `json:"no_spares"`         // their program ends before it asks for a world
	Unready   int           `json:"unready,omitempty"` // spares in a row that have failed before init
	Ended     bool          `json:"ended"`
}

// site is a host by name: what discovery reports of it, and why it may not be used. Snapshots have the exported fields.
type site struct {
	Name    string       `json:"name"`
	Listed  int          `json:"slots"`             // as discovered; 0 when it is not listed
	Drained bool         `json:"drained,omitempty"` // by an order: it is not to be used
	Moves   bool         `json:"moves,omitempty"`   // and that as its machine is to be moved
	Born    int64        `json:"born"`              // as discovered last
	Met     bool         `json:"met"`               // it was up before
	Lost    ban          `json:"lost"`              // for losses after it was up
	Unmet   ban          `json:"unmet"`             // for tries that did not reach it, or did not start its daemon
	Failed  map[int]*ban `json:"failed"`            // by slot; with BlacklistHost slot 0 stands for all
	Unfit   map[int]bool `json:"unfit,omitempty"`   // slots in which a spare has failed before init
	Present int          `json:"daemon"`            // the id of daemon, -1 for none; for snapshots alone

	slots  int      // of those listed that may be used
	daemon *daemon  // the one that has not ended
	never  *daemon  // one that ended without having been up: no host knows it, so its id is used again
	noted  []string // why it could not be used since it was last up, as the user has read
}

type state int

const (
	starting state = iota
	up
	dropped // it was sent the order to stop
	gone
)

// daemon is one that was started on a host. Snapshots have the exported fields.
type daemon struct {
	Site    int           `json:"site"`  // the place of site among all
	Born    int64         `json:"born"`  // of the site when it was started
	Since   time.Duration `json:"since"` // when it was up
	State   state         `json:"state"`
	Member  bool          `json:"member"`  // of the present epoch
	Failed  bool          `json:"failed"`  // it cannot take part any more, as it or others reported
	Entered bool          `json:"entered"` // it has been in a world

	id   int
	site *site
	used map[int]*process
}

// process is one that was to start on a host. Snapshots have the exported fields.
type process struct {
	Host      int    `json:"host"` // the id of host
	Slot      int    `json:"slot"`
	Started   bool   `json:"started"`
	Exited    bool   `json:"exited"`
	OK        bool   `json:"ok"`        // exited with 0
	Dismissed bool   `json:"dismissed"` // no longer wanted
	Since     uint32 `json:"since"`     // the first epoch that it was in, 0 for a spare
	Left      uint32 `json:"left"`      // the last epoch whose world it has left

	Ready  bool          `json:"ready,omitempty"`  // it waits in init for its first world
	Began  time.Duration `json:"began,omitempty"`  // as a spare
	Listed bool          `json:"listed,omitempty"` // as a spare, in an action

	number int
	host   *daemon
	why    string // the first of the errors that it last heard in the world that it left
}

// New returns the machine of a job whose policy has passed Check.
func New(cfg Config) *Machine { return (&Machine{cfg: cfg}).use() }

// Step takes an event and returns what to do about it. now is the time since some fixed moment.
func (m *Machine) Step(now time.Duration, ev Event) []Action {
	if m.job.Ended {
		return nil
	}
	m.job.Now = now
	if m.job.Epoch == 0 && !m.job.Waiting {
		m.job.Waiting, m.job.Since = true, now
		m.limitStart()
	}
	m.take(ev)
	m.rules.decide()
	out := m.out
	m.out = nil
	return out
}

// take notes what happened.
func (m *Machine) take(ev Event) {
	switch ev := ev.(type) {
	case Discovered:
		m.discovered(ev.Hosts)
	case Drain:
		m.drain(ev)
	case HostUp:
		if d := m.daemon(ev.Host); d != nil && d.State == starting {
			d.State, d.Since = up, m.job.Now
			d.site.Met, d.site.Unmet, d.site.noted = true, ban{}, nil
		}
	case HostEvicted:
		if d := m.daemon(ev.Host); d != nil && d.State != gone {
			m.rules.evicted(d, ev)
		}
	case HostLost:
		if d := m.daemon(ev.Host); d != nil && d.State != gone {
			m.hostLost(d, ev)
		}
	case StartFailed:
		m.startFailed(ev.Hosts)
	case Started:
		if p := m.process(ev.Process); p != nil {
			p.Started = true
		}
	case Wanted:
		m.form()
	case Exited:
		if p := m.process(ev.Process); p != nil && !p.Exited {
			m.rules.exited(p, ev)
		}
	case Rejoining:
		p := m.process(ev.Process)
		switch {
		case p == nil:
		case ev.Epoch == 0:
			p.Ready, m.job.Unready = true, 0
		case ev.Epoch <= m.job.Epoch && ev.Epoch > p.Left:
			p.Left, p.why = ev.Epoch, ev.Why
			if m.asked == nil && p.why != "" && p.Left == m.job.Epoch {
				m.asked = p
			}
		}
	case Kept:
		if m.daemon(ev.Host) != nil && ev.Epoch <= m.job.Epoch {
			m.job.Kept = max(m.job.Kept, ev.Epoch)
		}
	case Interrupted:
		if m.job.Broken == "" && m.job.Epoch > 0 {
			m.job.Broken = ev.Why
		}
	case Committed:
		m.entered(ev)
	}
}

func (m *Machine) emit(a Action) { m.out = append(m.out, a) }

func (m *Machine) end(e End) {
	m.job.Ended = true
	m.emit(e)
}

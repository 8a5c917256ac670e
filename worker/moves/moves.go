// Package moves acts when this host is paused or moves to other hardware, as virtual machines do.
//
// Package migrate speaks with vSphere; Moves carries out what that decides. A move that is announced pauses the ring
// first, links leave RDMA, and the other hosts hear of it, so that they wait for this one. After a move or a pause connections may be
// dead without showing it, and the host may be on another network: links are renewed, and the machine is probed
// again. Without an announcement, links keep what is in flight until the host is back.
package moves

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"gorun/rendezvous/pause"
	"gorun/rendezvous/wire"
	"gorun/worker/loop"
	"gorun/worker/migrate"
	"gorun/worker/migrate/vmtools"
)

// moveMargin is how much sooner than vSphere a host stops waiting for the ring.
const moveMargin = 5 * time.Second

// Daemon is what moves need from their daemon.
type Daemon interface {
	// Announce sends a message to the launcher and to all peers, and calls then when they have it, or cannot be reached.
	Announce(ctx context.Context, m wire.Message, then func())
	// PauseRDMA has the links go on by TCP until ResumeRDMA, and calls then when no device for RDMA holds on to memory.
	PauseRDMA(ctx context.Context, then func())
	ResumeRDMA()
	// Rejoin meets the other hosts again over new connections. It returns what makes this host known to gossip, which may
	// take long; nil if this host is in no world.
	Rejoin(ctx context.Context) (greet func())
	// PeerMoves takes note that a peer may be silent because it moves.
	PeerMoves(peer int)
	// PeerIsBack takes note that a peer has moved, or stayed where it is.
	PeerIsBack(ctx context.Context, peer int)
}

// Machine is this host.
type Machine interface {
	WarnOfLabels()
	MovedTo(*wire.Migrating)
	ProbeAgain(ctx context.Context, when string, then func())
}

// Ring knows the edges between hosts.
type Ring interface {
	Ring() []int
	ForgetOwn()
	ForgetPeer(peer int)
}

// Pauses pause the ring.
type Pauses interface {
	NextRequest() uint32
	Want(ctx context.Context, request uint32, held func(), refused func(reason string))
	End(ctx context.Context, done pause.Done)
}

// Config is what moves are made from.
type Config struct {
	loop.Component
	Daemon  Daemon
	Machine Machine
	Ring    Ring
	Pauses  Pauses
	Pulse   migrate.Pulse
	State   string // a directory that may hold the token of vSphere, "" for none
}

// Moves knows how this machine moves. The daemon's loop alone calls its methods.
type Moves struct {
	cfg       Config
	pulse     migrate.Pulse // shows that the host was paused
	announced *move         // the last move that vSphere announced, nil for none
}

// move is a move that vSphere has announced.
type move struct {
	request   uint32 // for a pause
	announced bool   // the others know of it
	over      bool
	announce  func(text string)  // lets the others know
	stop      context.CancelFunc // ends the wait for vSphere's limit
}

// New returns moves of a host that has not moved.
func New(cfg Config) *Moves { return &Moves{cfg: cfg, pulse: cfg.Pulse} }

// Beat takes the time since boot at an interval, and reports whether the host was paused since the last call.
func (m *Moves) Beat(ctx context.Context, now time.Duration) (paused bool) {
	gap := m.pulse.Beat(now)
	if gap > 0 {
		m.resumeRDMA()
		m.arrived(ctx, fmt.Sprintf("was paused for %.1f s", gap.Seconds()), false, func() {})
	}
	return gap > 0
}

// Watch learns of moves of this machine from VMware's programs, if it has them.
func (m *Moves) Watch(ctx context.Context, platform string) {
	path := m.cfg.Job.VMTools
	if path == "" && platform == "vmware" {
		path = vmtools.Find()
	}
	if path == "" {
		return
	}
	token := ""
	if name, err := os.Hostname(); err == nil && m.cfg.State != "" {
		token = filepath.Join(m.cfg.State, "vmtools", name)
	}
	handle := func(ctx context.Context, ev migrate.Event, ready func()) {
		m.cfg.Loop.Post(ctx, func() { m.take(ctx, ev, ready) })
	}
	m.cfg.Loop.Go(func() { vmtools.Run(ctx, vmtools.Config{Path: path, Token: token, Handle: handle}) })
}

// take acts on what vSphere reports of a move of this machine. It calls ready when the move may begin.
func (m *Moves) take(ctx context.Context, ev migrate.Event, ready func()) {
	d := m.cfg.Daemon
	switch ev.Kind {
	case migrate.Registered:
		m.cfg.Tell("%s", ev.Text)
	case migrate.Refused:
		m.cfg.Tell("vSphere does not announce moves of this machine: %s", ev.Text)
	case migrate.Starts:
		m.begin(ctx, ev, ready)
	case migrate.Waits:
		m.announceWithin(ctx, m.announced, ev.Limit)
	case migrate.Lasts: // the others still expect this host to fall silent
		m.cfg.Tell("the move goes on, and the ring is no longer paused for it")
		m.end(ctx, m.announced)
	case migrate.Missed:
		m.cfg.Tell("vSphere announced a move, but that was read too late: %s", ev.Text)
	case migrate.Acknowledged:
		m.cfg.Tell("ready to be moved, vSphere knows")
	case migrate.Ends, migrate.Moved:
		m.cfg.Ring.ForgetOwn()
		present := m.announced // another one may begin before the host has arrived
		d.ResumeRDMA()
		m.arrived(ctx, ev.Text, true, func() { m.end(ctx, present) })
	case migrate.Stays: // the host may have been paused all the same; its edges are what they were
		present := m.announced
		d.ResumeRDMA()
		m.arrived(ctx, ev.Text, false, func() { m.end(ctx, present) })
	}
}

// begin pauses the ring, announces the move, and lets vSphere go on. If several machines are to be moved, each waits
// for its own pause, but no longer than vSphere waits: then it is moved while operations are under way, and its links
// keep them.
func (m *Moves) begin(ctx context.Context, ev migrate.Event, ready func()) {
	m.end(ctx, m.announced) // its end was never reported
	present := &move{stop: func() {}}
	m.announced = present
	present.announce = func(text string) {
		if present.over || present.announced {
			return
		}
		present.announced = true
		present.stop()
		m.cfg.Tell("%s", text)
		starts := &wire.Migrating{Host: m.cfg.Job.HostID, State: wire.MoveStarts, Text: ev.Text}
		m.cfg.Daemon.PauseRDMA(ctx, func() {
			if m.announced == present && !present.over {
				m.cfg.Daemon.Announce(ctx, starts, ready)
			}
		})
	}
	if len(m.cfg.Ring.Ring()) < 2 {
		present.announce("no other host waits for this one")
		return
	}
	begun := time.Now()
	present.request = m.cfg.Pauses.NextRequest()
	m.announceWithin(ctx, present, ev.Limit)
	m.cfg.Pauses.Want(ctx, present.request, func() {
		present.announce(fmt.Sprintf("the ring is paused for the move after %.1f s", time.Since(begun).Seconds()))
	}, func(reason string) { present.announce("will be moved while operations are under way: " + reason) })
}

// announceWithin announces a move before vSphere, which waits for a limited time from now, goes on without the ring.
func (m *Moves) announceWithin(ctx context.Context, present *move, limit time.Duration) {
	if present == nil || present.over || present.announced {
		return
	}
	present.stop()
	waiting, stop := context.WithCancel(ctx)
	present.stop = stop
	m.cfg.Loop.Go(func() {
		timer := time.NewTimer(limit - min(moveMargin, limit/4))
		defer timer.Stop()
		select {
		case <-timer.C:
			m.cfg.Loop.Post(ctx, func() {
				present.announce("will be moved while operations are under way: vSphere waits no longer")
			})
		case <-waiting.Done():
		}
	})
}

// end resumes the ring.
func (m *Moves) end(ctx context.Context, present *move) {
	if present == nil || present.over {
		return
	}
	present.over = true
	present.stop()
	if present.request != 0 {
		m.cfg.Pauses.End(ctx, pause.Done{Request: present.request})
	}
}

// resumeRDMA lets links go over RDMA again, unless vSphere still is to move this machine.
func (m *Moves) resumeRDMA() {
	if m.announced == nil || m.announced.over {
		m.cfg.Daemon.ResumeRDMA()
	}
}

// arrived goes on after a move or a pause, and calls then when the machine has been looked at. The other hosts may
// have given this one up.
func (m *Moves) arrived(ctx context.Context, text string, moved bool, then func()) {
	if moved {
		m.cfg.Machine.WarnOfLabels()
	}
	greet := m.cfg.Daemon.Rejoin(ctx)
	if greet == nil {
		then()
		return
	}
	ends := &wire.Migrating{Host: m.cfg.Job.HostID, State: wire.MoveEnds, Text: text, Moved: moved}
	m.cfg.Daemon.Announce(ctx, ends, func() {})
	m.cfg.Loop.Go(func() {
		greet()
		m.cfg.Machine.ProbeAgain(ctx, "after the pause ", then)
	})
}

// Peer takes a peer's report of its own move.
func (m *Moves) Peer(ctx context.Context, peer int, report *wire.Migrating) {
	if report.State == wire.MoveStarts {
		m.cfg.Daemon.PeerMoves(peer)
		return
	}
	if report.Moved { // to where its edges are others
		m.cfg.Ring.ForgetPeer(peer)
	}
	m.cfg.Daemon.PeerIsBack(ctx, peer)
}

// Host takes the launcher's report of the move of any host, which was observed from outside.
func (m *Moves) Host(ctx context.Context, report *wire.Migrating) {
	switch {
	case report.Host != m.cfg.Job.HostID:
		m.Peer(ctx, report.Host, report)
	case report.State == wire.MoveEnds:
		m.cfg.Machine.MovedTo(report)
		m.resumeRDMA()
		m.arrived(ctx, report.Text, true, func() {})
	}
}

package launcher

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"gorun/launcher/elastic"
	"gorun/launcher/plan"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

// ErrStopped is the cause of a job that was ended from outside (Ctrl-C) and not by one of its ranks.
var ErrStopped = errors.New("stopped")

// ErrInterrupted is the cause of one that was ended by Ctrl-C, of which ranks hear as they would at a terminal.
var ErrInterrupted = errors.New("interrupted")

const (
	// settle is how long a failing start waits for the other hosts, so that one report names all of them.
	settle = 5 * time.Second
	// manyHosts is from how many hosts on they get the binary from each other: fewer are sent it as fast.
	manyHosts = 8
	// patience is how much longer than their grace daemons may take to stop; haste is all that a second
	// Ctrl-C leaves them.
	patience = 10 * time.Second
	haste    = time.Second
	// sweepLimit is how long a host may take to clean up behind a daemon that was killed.
	sweepLimit = 5 * time.Second
)

// Run runs the job and returns nil when every rank exited with 0. Otherwise the error says why:
// *RankError, *HostError, HostErrors, or the cause of ctx. When it returns, every daemon has ended or
// its connection is closed, which ends it.
func Run(ctx context.Context, spec Spec) error {
	j, err := newJob(&spec)
	if err != nil {
		return err
	}
	var hangUp context.CancelFunc
	j.talk, hangUp = context.WithCancel(context.Background())
	defer hangUp()
	for _, h := range j.hosts {
		if !j.ended[h.id] {
			j.converse(h)
		}
	}
	err = j.loop(ctx)
	j.tellLeft(time.Now())
	hangUp()
	if len(j.ended) < len(j.hosts) {
		spec.Output.Abandon() // a terminal that takes nothing may be what keeps them
	}
	j.wg.Wait()
	j.tellEdges()
	if text := j.carried.text(); spec.Verbose && text != "" {
		spec.Note("gorun: %s", text)
	}
	return err
}

// converse starts the conversation with a host.
func (j *job) converse(h *host) {
	if j.spec.Relay != nil && len(j.hosts) >= manyHosts {
		j.spec.Relay.Begin()
	}
	line, hangUp := context.WithCancel(j.talk)
	h.hangUp = hangUp
	j.wg.Go(func() {
		defer hangUp()
		h.talk(j.talk, line, j.events)
	})
}

// job is the launcher's state; only loop touches it once Run has started the conversations.
type job struct {
	spec     *Spec
	talk     context.Context // ends all conversations
	wg       sync.WaitGroup  // for them
	change   *change         // nil if the world stays as it is
	pending  *pending        // what waits until it is safe, nil for nothing
	minority minority        // for how long in vain
	// template is what all daemons are told.
	template wire.Job
	hosts    []*host
	events   chan event

	up, ended  map[int]bool
	ready      map[int]*wire.Ready
	startup    *time.Timer
	began      time.Time
	late       time.Time          // when the start had taken too long; zero if it has not
	epoch      uint32             // of the last roster
	worlds     map[int]wire.World // that hosts entered last
	rejoining  map[int]bool       // processes that wait for the next world
	started    map[int]bool
	exited     map[int]bool
	shown      uint32 // epoch of the ring that was shown last
	failures   []*HostError
	verdict    error
	stopping   bool
	settleC    <-chan time.Time
	inspectC   <-chan time.Time // when we no longer wait for what daemons find
	inspected  map[int]*wire.Inspected
	hostOfRank []int // host ids by process
	world      forming
	fence      fence
	names      names
	singletons bool // the user has been warned of one
	stalls     stalls
	silences   silences
	alone      alone
	asleep     asleep
	members    []int // host ids of the last roster
	// accusations are what hosts say of each other's silence.
	accusations elastic.Accusations
	apart       map[[2]int]*apart   // hosts of which one does not answer the other, by both ids, the lesser first
	edges       map[int][]wire.Edge // what hosts found out about their ways
	topology    *wire.Topology      // the file of facts, if it was changed since the job began
	carried     carried
}

func newJob(spec *Spec) (*job, error) {
	secret := make([]byte, 32)
	if _, err := rand.Read(secret); err != nil {
		return nil, fmt.Errorf("make job secret: %w", err)
	}
	id := make([]byte, 8)
	if _, err := rand.Read(id); err != nil {
		return nil, fmt.Errorf("make job id: %w", err)
	}
	j := &job{spec: spec, events: make(chan event), up: map[int]bool{}, ended: map[int]bool{}, ready: map[int]*wire.Ready{},
		worlds: map[int]wire.World{}, rejoining: map[int]bool{}, started: map[int]bool{}, exited: map[int]bool{}, inspected: map[int]*wire.Inspected{}, hostOfRank: make([]int, len(spec.Placement.Ranks)), change: newChange(spec.Elastic), silences: silences{timing: spec.Timing(), since: map[int]time.Time{}}, edges: map[int][]wire.Edge{}}
	first := spec.ProgramOf(0)
	j.template = wire.Job{JobOptions: spec.JobOptions, ID: hex.EncodeToString(id), Secret: secret, Argv: first.Argv, Dir: first.Dir}
	var names []string
	for _, h := range spec.Placement.Hosts {
		names = append(names, h.Name)
	}
	for hid, ph := range spec.Placement.Hosts {
		h := newHost(hid, ph.Name, spec, j.template)
		h.job.Alone, h.job.Slots, h.job.Toward = len(names) == 1, len(ph.Ranks), towards(names, hid)
		var ranks []wire.Rank
		for _, rank := range ph.Ranks {
			r := spec.Placement.Ranks[rank]
			number, program := spec.programOf(rank)
			x := wire.Rank{Process: rank, Rank: rank, LocalRank: r.LocalRank, CrossRank: r.CrossRank, CrossSize: r.CrossSize,
				Env: program.Env}
			if len(spec.Programs) > 1 {
				x.Argv, x.Dir, x.Program = program.Argv, program.Dir, number
			}
			ranks = append(ranks, x)
			j.hostOfRank[rank] = hid
		}
		h.own(ranks)
		j.hosts = append(j.hosts, h)
	}
	if spec.Legacy != nil {
		return j, j.inherit(spec.Legacy)
	}
	return j, nil
}

// ProgramOf returns the program of a rank.
func (s *Spec) ProgramOf(rank int) Program {
	_, p := s.programOf(rank)
	return p
}

// programOf returns the number of a rank's program, too.
func (s *Spec) programOf(rank int) (number int, p Program) {
	for number, p = range s.Programs {
		if rank < p.Ranks {
			break
		}
		rank -= p.Ranks
	}
	return number, p
}

// towards names another host, so that a daemon can tell which of its addresses leads there.
func towards(names []string, self int) string {
	for i, n := range names {
		if i != self {
			return bare(n)
		}
	}
	return ""
}

// bare is a host's name without the user that logs in there.
func bare(name string) string { return name[strings.LastIndexByte(name, '@')+1:] }

func (h *host) env(remote bool) []string { return plan.UserEnv(h.spec.Env, remote) }

// loop handles one event at a time until every conversation has ended.
func (j *job) loop(ctx context.Context) error {
	j.began, j.startup = time.Now(), time.NewTimer(j.spec.StartTimeout)
	defer j.startup.Stop()
	if j.change != nil {
		j.startup.Stop() // how long a start may take is the policy's affair
		defer j.change.tick.Stop()
	}
	listen := time.NewTicker(listenEvery)
	defer listen.Stop()
	lists := j.hostLists()
	done, hurry, signals := ctx.Done(), j.spec.Hurry, j.spec.Signals
	var timeout <-chan time.Time
	if j.spec.Timeout > 0 {
		t := time.NewTimer(j.spec.Timeout)
		defer t.Stop()
		timeout = t.C
	}
	var last, waits <-chan time.Time // after a stop: when we no longer wait for a daemon, and when users hear for which
	for len(j.ended) < len(j.hosts) || j.change != nil && !j.stopping {
		j.report()
		select {
		case ev := <-j.events:
			j.handle(ev)
			if ev.seen != nil {
				close(ev.seen)
			}
		case list := <-lists:
			j.discovered(list)
		case number := <-j.kept():
			j.safe(number)
		case now := <-listen.C:
			j.listen(now)
		case now := <-j.ticks():
			j.tellWorlds(now)
			j.decide(elastic.Tick{})
		case <-done:
			done = nil
			j.cutOff(context.Cause(ctx))
		case <-hurry:
			hurry = nil
			j.stop(ErrStopped)
			j.broadcast(&wire.Stop{Now: true})
			last = time.After(haste)
		case m := <-j.spec.Moves:
			j.moved(m)
		case text := <-j.spec.Facts:
			j.template.Topology, j.topology = text, &wire.Topology{Text: text}
			j.broadcast(j.topology)
		case <-j.spec.AskUsage:
			j.broadcast(&wire.AskUsage{})
		case n := <-signals:
			j.asleep.signalled(n, time.Now())
			j.broadcast(&wire.Signal{Number: n})
		case <-j.startup.C:
			if j.starting() {
				j.startTimedOut()
			}
		case <-j.world.due:
			j.form()
		case <-j.stalls.timeout:
			j.judgeStalls()
		case <-j.settleC:
			j.giveUp()
		case <-timeout:
			j.inspect()
		case <-j.inspectC:
			j.timedOut()
		case now := <-waits:
			j.tellStragglers(now)
		case <-last:
			return j.verdict // closing the connections ends what is left
		}
		if j.stopping && last == nil {
			last, waits = time.After(j.spec.Grace+patience), time.After(j.spec.Grace+tellAfter)
		}
	}
	return j.verdict
}

func (j *job) handle(ev event) {
	h := j.hosts[ev.host]
	if !j.stopping && j.abandoned(time.Now(), h, ev) {
		j.endAlone() // of which this is the consequence
	}
	h.unheard = ev.err != nil && j.stopping && j.vanished(h)
	switch {
	case j.change != nil && !ev.up:
		j.elasticEvent(h, ev)
	case ev.err != nil:
		j.ended[ev.host] = true
		j.hostFailed(ev.err)
		if j.settleC != nil && j.allStarted() {
			j.giveUp() // ranks are lost with it, whatever becomes of the world that the others form
		}
	case ev.up:
		j.up[ev.host] = true
		h.session = ev.session
		if j.topology != nil {
			h.queue.put(j.topology) // its Job may be from before
		}
		if j.stopping || h.adopted && h.leaving {
			h.queue.put(&wire.Stop{})
		}
	default:
		j.message(h, ev.msg)
	}
}

func (j *job) message(h *host, msg wire.Message) {
	switch msg := msg.(type) {
	case *wire.Ready:
		j.ready[h.id] = msg
		switch {
		case j.stopping:
		case len(j.ready) == len(j.hosts):
			j.sendRosters("the job began")
		case len(j.failures) > 0 && j.decided():
			j.giveUp()
		}
	case *wire.Committed:
		strange := func(id int) bool { return id < 0 || id >= len(j.hosts) }
		if slices.ContainsFunc(msg.World.Order, strange) || slices.ContainsFunc(msg.World.Rings, func(r wire.RailRing) bool { return slices.ContainsFunc(r.Order, strange) }) {
			j.hostFailed(&HostError{Host: h.name, Step: "join", Err: fmt.Errorf("the daemon reports a world of unknown hosts %v", msg.World.Order)})
			return
		}
		j.worlds[h.id] = msg.World
		if j.shown < msg.World.Epoch && len(msg.World.Order) > 0 {
			j.shown = msg.World.Epoch
			j.showRing(msg.World)
		}
		if j.settleC != nil && j.decided() {
			j.giveUp()
		}
	case *wire.Reordered:
		j.reordered(h, msg)
	case *wire.Rejoining: // of a static job
		if j.owns(h, msg.Process) && msg.Epoch == j.epoch {
			j.rejoining[msg.Process] = true
			j.beginAnew()
		}
	case *wire.Wanted:
		j.form()
	case *wire.Started:
		if j.owns(h, msg.Process) {
			first := !j.started[msg.Process]
			j.started[msg.Process] = true
			if first {
				j.feed(msg.Process)
			}
			j.watch(RankEvent{Rank: msg.Process, Host: h.name, PID: msg.PID})
			j.formSoon()
		}
	case *wire.Exited:
		if j.owns(h, msg.Process) {
			j.rankExited(h, msg)
		}
	case *wire.Failed:
		j.daemonFailed(h, msg)
	case *wire.Evidence:
		j.evidence(h, msg)
	case *wire.Fence:
		j.fence.arrive(j, h, msg)
	case *wire.Alone:
		j.singleton(h, msg)
	case *wire.Name:
		if j.owns(h, msg.Rank) {
			h.queue.put(j.names.answer(msg))
		}
	case *wire.Stuck:
		if j.owns(h, msg.Ended) && len(msg.Waiting) > 0 {
			j.stuck(h, msg)
		}
	case *wire.Inspected:
		j.inspected[h.id] = msg
		if j.inspectC != nil {
			j.inspectedAll()
		}
	case *wire.Taken:
		select {
		case <-h.queue.room:
		default: // it acknowledges what was never sent: nothing to make room for
		}
	case *wire.Usage:
		j.used(h, msg)
	case *wire.Stalled:
		j.stalled(h, msg)
	case *wire.Migrating:
		j.migrating(h, msg)
	case *wire.Moved:
		j.relocated(h, msg)
	case *wire.Edges:
		j.edges[h.id] = msg.Edges
	case *wire.Log:
		j.spec.Note("gorun: %s: %s", h.name, msg.Text)
	case *wire.Done:
		j.ended[h.id] = true
		j.carried.add(msg.Links)
		if !j.stopping {
			j.hostFailed(&HostError{Host: h.name, Step: "run", Err: errors.New("the daemon ended before its ranks"), Code: ExitTransport})
		}
	}
}

// owns checks what a daemon says about processes: it may only speak of its own. Here they are numbered as the
// ranks of the first world.
func (j *job) owns(h *host, process int) bool {
	return process >= 0 && process < len(j.hostOfRank) && j.hostOfRank[process] == h.id
}

// beginAnew gives ranks that left the world, all of them, another one with the same members.
func (j *job) beginAnew() {
	switch {
	case j.stopping || len(j.rejoining) == 0 || len(j.rejoining)+len(j.exited) < len(j.hostOfRank):
	case len(j.exited) > 0:
		j.stop(fmt.Errorf("start a new world: %s called init again, but %s ended",
			listRanks(slices.Sorted(maps.Keys(j.rejoining))), listRanks(slices.Sorted(maps.Keys(j.exited)))))
	default:
		j.sendRosters("its ranks began anew")
	}
}

func (j *job) rankExited(h *host, e *wire.Exited) {
	j.spec.Output.Close(e.Process)
	j.watch(RankEvent{Rank: e.Process, Host: h.name, Ended: true, Code: e.Code, Signal: e.Signal})
	j.started[e.Process], j.exited[e.Process] = true, true
	settling := j.settleC != nil // then hosts have failed before, and this is a consequence
	switch {
	case j.stopping || settling:
	case e.Asked:
		j.hostFailed(&HostError{Host: h.name, Step: "run", Err: errors.New("the daemon has stopped its ranks by itself"), Code: ExitTransport})
	case e.Code != 0:
		failure := failureOf(h, e)
		failure.Tail = j.spec.Output.Tail(e.Process)
		j.stop(failure)
	}
	if len(j.exited) == len(j.hostOfRank) {
		if settling {
			j.giveUp()
		}
		j.stop(nil)
	}
	j.fence.check(j)
	j.beginAnew()
}

func (j *job) watch(e RankEvent) {
	if j.spec.Watch != nil {
		j.spec.Watch(e)
	}
}

// daemonFailed takes a daemon's word about itself or about a peer that it lost.
func (j *job) daemonFailed(h *host, f *wire.Failed) {
	if j.waitsForSilent(time.Now(), f) {
		return
	}
	e := &HostError{Host: h.name, Step: f.Step, Err: errors.New(f.Text), Hint: f.Hint, Code: f.Code}
	if f.Peer >= 0 && f.Peer < len(j.hosts) && f.Peer != h.id {
		e.Host = j.hosts[f.Peer].name
		j.ended[f.Peer] = true // nobody will hear of it again
	}
	j.hostFailed(e)
}

// hostFailed gathers failures while the job starts, so that a report names all hosts at once; a host
// that is lost later decides at once.
func (j *job) hostFailed(e *HostError) {
	if j.stopping && j.verdict != nil && j.settleC == nil {
		return // a consequence
	}
	if len(j.exited) == len(j.hostOfRank) && j.verdict == nil && j.stopping {
		return // every rank had already ended well
	}
	if j.failed(e.Host) {
		return // one reason is enough
	}
	j.failures = append(j.failures, e)
	if !j.starting() || j.decided() {
		j.giveUp()
		return
	}
	if j.settleC == nil {
		j.settleC = time.After(settle)
	}
}

// decided is true when no host's start is still open.
func (j *job) decided() bool {
	for _, h := range j.hosts {
		open := j.ready[h.id] == nil || j.world.formed && j.worlds[h.id].Epoch == 0
		if open && !j.ended[h.id] && !j.failed(h.name) {
			return false
		}
	}
	return true
}

func (j *job) failed(name string) bool {
	for _, e := range j.failures {
		if e.Host == name {
			return true
		}
	}
	return false
}

// giveUp reports what failed, in the order of the host list. Hosts that have not answered by then are
// named beside them: they may be slow, or be the next to fail. One that is silent may be why others failed.
func (j *job) giveUp() {
	j.settleC = nil
	if j.starting() && !j.stopping {
		for h, since := range j.silentHosts(time.Now()) {
			if !j.failed(h.name) {
				j.failures = append(j.failures, silentError(h, since))
			}
		}
	}
	var silent, late []string
	if !j.allStarted() {
		for _, h := range j.hosts {
			switch {
			case j.up[h.id] || j.ended[h.id] || j.failed(h.name):
			case h.answered.Load():
				late = append(late, h.name)
			default:
				silent = append(silent, h.name)
			}
		}
	}
	slices.SortStableFunc(j.failures, func(a, b *HostError) int { return j.index(a.Host) - j.index(b.Host) })
	if len(j.failures) == 1 && len(silent)+len(late) == 0 {
		j.stop(j.failures[0])
		return
	}
	j.stop(&HostErrors{Hosts: len(j.hosts), Failed: j.failures, Silent: silent, Late: late})
}

func (j *job) index(name string) int {
	return slices.IndexFunc(j.hosts, func(h *host) bool { return h.name == name })
}

func (j *job) startTimedOut() {
	now := time.Now()
	if j.suspended(now) {
		j.startup.Reset(startAgain)
		return
	}
	silent := j.silentHosts(now)
	for _, h := range j.hosts {
		if j.failed(h.name) {
			continue
		}
		e := &HostError{Host: h.name, Code: ExitTransport, Hint: "give it more time with --start-timeout"}
		switch {
		case silent[h] > 0:
			j.failures = append(j.failures, silentError(h, silent[h]))
			continue
		case len(silent) > 0 && j.up[h.id]:
			continue // it waits for those
		case !j.up[h.id] && h.answered.Load():
			e.Step, e.Err = "start daemon", fmt.Errorf("the host answers, but no daemon runs there after %v", j.spec.StartTimeout)
			e.Hint = "is the host busy, or the way to it slow? Give it more time with --start-timeout"
		case !j.up[h.id]:
			e.Step, e.Err = "connect", fmt.Errorf("no answer within %v", j.spec.StartTimeout)
			e.Hint = "is the host up, the address right and the port open in the firewall? Or give it more time with --start-timeout"
		case j.ready[h.id] == nil:
			e.Step, e.Err = "probe", fmt.Errorf("the daemon is not ready after %v", j.spec.StartTimeout)
		case j.worlds[h.id].Epoch == 0 && len(j.ready) == len(j.hosts) && !j.world.later:
			e.Step, e.Err = "join", fmt.Errorf("the hosts could not form a world within %v", j.spec.StartTimeout)
			e.Hint = "hosts must reach each other directly: check firewalls between them, and by gorun doctor whether large packets are lost on the way"
		case (j.worlds[h.id].Epoch > 0 || j.world.later) && j.waitsForRanks(h):
			e.Step, e.Err = "start ranks", fmt.Errorf("not all of its ranks run after %v", j.spec.StartTimeout)
			e.Hint = "is the program, or the working directory, on a file system that does not answer?"
		default:
			continue
		}
		j.failures = append(j.failures, e)
	}
	if len(j.failures) > 0 {
		j.giveUp()
	}
}

func (j *job) waitsForRanks(h *host) bool {
	return slices.ContainsFunc(j.spec.Placement.Hosts[h.id].Ranks, func(rank int) bool { return !j.started[rank] })
}

// sendRosters begins an epoch.
func (j *job) sendRosters(why string) {
	j.epoch++
	clear(j.rejoining)
	r := wire.Roster{Epoch: j.epoch, LeaseMS: int(j.lease().Milliseconds()), Reason: why, Size: len(j.hostOfRank), Later: j.mayWait()}
	j.world.later = r.Later
	for _, h := range j.hosts {
		ready := j.ready[h.id]
		r.Peers = append(r.Peers, wire.Peer{ID: h.id, Name: h.name, Gossip: ready.Gossip, Data: ready.Data, Ports: ready.Ports, Ranks: j.spec.Placement.Hosts[h.id].Ranks})
	}
	first := j.ready[0]
	if len(first.Data) > 0 {
		r.MasterAddr, _, _ = net.SplitHostPort(first.Data[0])
	}
	r.MasterPort, r.KVPort = first.Port, first.KVPort
	j.tellPeers(&r, j.hosts)
	for _, h := range j.hosts {
		mine := r
		mine.Ranks = *h.ranks.Load()
		h.queue.put(&mine)
	}
}

// tellPeers tells hosts what is the same for all of them in the rosters that follow. It is encoded once: a copy for each of
// 1,000 hosts, each of all the others, would be most of the launcher's memory.
func (j *job) tellPeers(r *wire.Roster, to []*host) {
	peers, err := wire.Encode(&wire.Peers{Epoch: r.Epoch, Peers: r.Peers})
	if err != nil {
		return // too many to tell at once: each host is told why its roster cannot be sent
	}
	r.Peers = nil
	for _, h := range to {
		h.queue.put(peers)
	}
}

// relocated passes on that a host is found elsewhere: a peer may not have heard of it, if it has moved as well.
func (j *job) relocated(h *host, m *wire.Moved) {
	former := j.ready[h.id]
	if former == nil || m.Host != h.id {
		return
	}
	ready := *former
	ready.Gossip, ready.Data = m.Gossip, m.Data
	j.ready[h.id] = &ready
	for _, other := range j.hosts {
		if other != h && j.ready[other.id] != nil && !j.ended[other.id] {
			other.queue.put(m)
		}
	}
}

func (j *job) showRing(w wire.World) {
	if !j.spec.Verbose {
		return
	}
	for _, line := range describeRing(j.described(), w) {
		j.spec.Note("gorun: %s", line)
	}
}

// reordered takes note that the ring of the present world is another one.
func (j *job) reordered(h *host, m *wire.Reordered) {
	strange := func(id int) bool { return id < 0 || id >= len(j.hosts) }
	if slices.ContainsFunc(m.World.Order, strange) || slices.ContainsFunc(m.Former, strange) || m.World.Epoch != j.worlds[h.id].Epoch {
		return
	}
	for id, w := range j.worlds { // only one daemon tells
		if w.Epoch == m.World.Epoch {
			w.Order, w.Why, w.Rings, w.Split = m.World.Order, m.World.Why, nil, ""
			j.worlds[id] = w
		}
	}
	if !j.spec.Verbose {
		return
	}
	j.spec.Note("gorun: epoch %d, the ring changes while the job runs: %s", m.World.Epoch, m.Text)
	j.spec.Note("gorun: epoch %d, former %s", m.World.Epoch, topology.Ring{Order: m.Former}.Line(j.described()))
	j.showRing(m.World)
}

// starting is true until all ranks run, and while the hosts form the world that the ranks did not wait for.
func (j *job) starting() bool { return !j.allStarted() || j.world.formed && !j.entered() }

func (j *job) allStarted() bool { return len(j.started) == len(j.hostOfRank) }

// stop ends the job with a verdict; the first verdict stands.
func (j *job) stop(verdict error) {
	if j.stopping {
		return
	}
	j.stopping, j.verdict = true, verdict
	j.broadcast(&wire.Stop{Interrupt: errors.Is(verdict, ErrInterrupted)})
	if verdict != nil && (j.change != nil || !j.allStarted()) {
		// Hosts that were not reached yet have nothing to stop: do not wait for them.
		for _, h := range j.hosts {
			if !j.up[h.id] {
				j.ended[h.id] = true
			}
		}
	}
}

// cutOff stops a job from outside. If that is a start of which hosts have failed already, nobody else would say why.
func (j *job) cutOff(cause error) {
	for _, e := range j.failures {
		if !j.stopping {
			j.spec.Note("gorun: %v", e)
		}
	}
	j.stop(cause)
}

func (j *job) broadcast(m wire.Message) {
	for _, h := range j.hosts {
		if j.up[h.id] {
			h.queue.put(m)
		}
	}
}

func (j *job) report() {
	if j.spec.Progress != nil {
		j.spec.Progress(Progress{Hosts: len(j.hosts), Reached: len(j.up), Ready: len(j.ready), Started: len(j.started), Ranks: len(j.hostOfRank), Waits: j.awaited(time.Now())})
	}
}

// feed begins to send standard input to the ranks that read it when the last of them has started.
func (j *job) feed(started int) {
	readers := j.spec.Readers
	if readers == nil {
		readers = []int{0}
	}
	if j.spec.Stdin == nil || !slices.Contains(readers, started) || slices.ContainsFunc(readers, func(p int) bool { return !j.started[p] }) {
		return
	}
	var queues []*mailbox
	for _, h := range j.hosts {
		if slices.ContainsFunc(readers, func(p int) bool { return j.owns(h, p) }) {
			queues = append(queues, &h.queue)
		}
	}
	go forwardStdin(j.spec.Stdin, queues) // a read from a terminal cannot be interrupted: not waited for
}

// forwardStdin sends standard input to the hosts of the ranks that read it. The slowest one sets the pace.
func forwardStdin(r io.Reader, queues []*mailbox) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		m := &wire.Stdin{Data: append([]byte(nil), buf[:n]...), EOF: err != nil}
		for _, q := range queues {
			q.room <- struct{}{}
			q.put(m)
		}
		if err != nil {
			return
		}
	}
}

// describeRing tells what was found on each host and in which order data goes round.
func describeRing(hosts []topology.Host, w wire.World) []string {
	var out []string
	for _, h := range hosts {
		out = append(out, describeHost(h))
	}
	out = append(out, fmt.Sprintf("epoch %d, %s", w.Epoch, topology.Ring{Order: w.Order}.Line(hosts)))
	if len(w.Order) > 1 && len(w.Why) == len(w.Order) {
		for i, id := range w.Order {
			out = append(out, fmt.Sprintf("  %s → %s: %s", hosts[id].Name, hosts[w.Order[(i+1)%len(w.Order)]].Name, w.Why[i]))
		}
	}
	if w.Split != "" {
		out = append(out, fmt.Sprintf("epoch %d, %s", w.Epoch, w.Split))
	}
	for _, r := range w.Rings {
		out = append(out, fmt.Sprintf("  %.1f %% in %s, %s", float64(r.Share)/10, r.Rail, topology.Ring{Order: r.Order}.Line(hosts)))
	}
	return out
}

func describeHost(h topology.Host) string {
	var nics []string
	for _, n := range h.NICs {
		if !n.Up || len(n.Addrs) == 0 {
			continue
		}
		s := n.Name
		if n.Driver != "" {
			s += " " + n.Driver
		}
		if n.Speed > 0 {
			s += fmt.Sprintf(" %d Mbit/s", n.Speed)
		}
		if n.Node >= 0 {
			s += fmt.Sprintf(" on node %d", n.Node)
		}
		nics = append(nics, s)
	}
	desc := fmt.Sprintf("%s: %s, %s", h.Name, topology.Count(h.CPUs, "CPU"), topology.Count(max(len(h.Nodes), 1), "NUMA node"))
	if h.Platform != "" {
		desc += ", " + h.Platform
	}
	if len(nics) > 0 {
		desc += ", " + strings.Join(nics, ", ")
	}
	return desc
}

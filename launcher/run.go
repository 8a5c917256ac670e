package launcher

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
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
	for _, h := range j.hosts { // of another launcher
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
	if j.spec.Relay != nil && max(len(j.hosts), len(j.change.slots)) >= manyHosts {
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
	change   *change
	pending  *pending // what waits until it is safe, nil for nothing
	minority minority // for how long in vain
	// template is what all daemons are told.
	template wire.Job
	hosts    []*host
	events   chan event

	up, ended  map[int]bool
	ready      map[int]*wire.Ready
	began      time.Time
	late       time.Time          // when the start had taken too long; zero if it has not
	epoch      uint32             // of the last roster
	worlds     map[int]wire.World // that hosts entered last
	started    map[int]bool
	exited     map[int]bool
	shown      uint32 // epoch of the ring that was shown last
	verdict    error
	stopping   bool
	inspectC   <-chan time.Time // when we no longer wait for what daemons find
	inspected  map[int]*wire.Inspected
	hostOfRank []int // host ids by process
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
		worlds: map[int]wire.World{}, started: map[int]bool{}, exited: map[int]bool{}, inspected: map[int]*wire.Inspected{},
		change: newChange(spec), silences: silences{timing: spec.Timing(), since: map[int]time.Time{}}, edges: map[int][]wire.Edge{}}
	for _, r := range spec.Placement.Ranks {
		j.hostOfRank = append(j.hostOfRank, r.Host)
	}
	first, elastic := spec.ProgramOf(0), spec.Elastic != nil
	j.template = wire.Job{JobOptions: spec.JobOptions, ID: hex.EncodeToString(id), Secret: secret, Argv: first.Argv, Dir: first.Dir,
		Elastic: elastic, Open: !j.change.config.Listed, Alone: !elastic && len(spec.Placement.Hosts) == 1}
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

// bare is a host's name without the user that logs in there.
func bare(name string) string { return name[strings.LastIndexByte(name, '@')+1:] }

func (h *host) env(remote bool) []string { return plan.UserEnv(h.spec.Env, remote) }

// loop handles one event at a time until every conversation has ended.
func (j *job) loop(ctx context.Context) error {
	j.began = time.Now()
	defer j.change.tick.Stop()
	listen := time.NewTicker(listenEvery)
	defer listen.Stop()
	done, hurry, signals := ctx.Done(), j.spec.Hurry, j.spec.Signals
	var timeout <-chan time.Time
	if j.spec.Timeout > 0 {
		t := time.NewTimer(j.spec.Timeout)
		defer t.Stop()
		timeout = t.C
	}
	var last, waits <-chan time.Time // after a stop: when we no longer wait for a daemon, and when users hear for which
	if j.change.first != nil {
		j.discovered(j.change.first)
	}
	for len(j.ended) < len(j.hosts) || !j.stopping {
		j.report()
		select {
		case ev := <-j.events:
			j.handle(ev)
			if ev.seen != nil {
				close(ev.seen)
			}
		case list := <-j.change.lists:
			j.discovered(list)
		case number := <-j.kept():
			j.safe(number)
		case now := <-listen.C:
			j.listen(now)
		case now := <-j.change.tick.C:
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
		case <-j.stalls.timeout:
			j.judgeStalls()
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
	case ev.err != nil:
		j.hungUpOn(h, ev.err)
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

// hungUpOn takes the end of a conversation whose host has not said Done.
func (j *job) hungUpOn(h *host, err *HostError) {
	j.ended[h.id] = true
	why := err.Error()
	switch gone := h.unreachable.Load(); {
	case h.lostWhy != "":
		why = h.lostWhy
	case gone != nil:
		why = *gone
	}
	if h.failure == nil {
		h.failure = err
	}
	j.decide(h.lostBy(why))
}

// evict gives up a host that fails, by its own word or that of others.
func (j *job) evict(h *host, e *HostError, own bool) {
	if j.stopping || j.ended[h.id] || h.lostWhy != "" {
		return
	}
	h.failure, h.lostWhy, h.heardLast, h.ownWord = e, e.Err.Error(), j.hears(h, time.Now()), own
	j.decide(elastic.HostEvicted{Host: h.id, Own: own, Reason: h.lostWhy})
}

func (j *job) message(h *host, msg wire.Message) {
	switch msg := msg.(type) {
	case *wire.Ready:
		j.ready[h.id] = msg
		j.decide(elastic.HostUp{Host: h.id})
	case *wire.Committed:
		strange := func(id int) bool { return id < 0 || id >= len(j.hosts) }
		if slices.ContainsFunc(msg.World.Order, strange) || slices.ContainsFunc(msg.World.Rings, func(r wire.RailRing) bool { return slices.ContainsFunc(r.Order, strange) }) {
			j.evict(h, &HostError{Host: h.name, Step: "join", Err: fmt.Errorf("the daemon reports a world of unknown hosts %v", msg.World.Order)}, true)
			return
		}
		j.worlds[h.id] = msg.World
		if j.shown < msg.World.Epoch && len(msg.World.Order) > 0 {
			j.shown = msg.World.Epoch
			j.showRing(msg.World)
		}
		j.decide(elastic.Committed{Host: h.id, Epoch: msg.World.Epoch})
	case *wire.StateKept:
		j.decide(elastic.Kept{Host: h.id, Epoch: msg.Epoch})
	case *wire.Account:
		j.accounted(h, msg)
	case *wire.Reordered:
		j.reordered(h, msg)
	case *wire.Rejoining:
		if j.owns(h, msg.Process) {
			j.decide(elastic.Rejoining{Process: msg.Process, Epoch: msg.Epoch, Why: strings.Join(strings.Fields(msg.Why), " ")})
		}
	case *wire.Wanted:
		j.decide(elastic.Wanted{})
	case *wire.Started:
		if j.owns(h, msg.Process) {
			first := !j.started[msg.Process]
			j.started[msg.Process] = true
			if first {
				j.feed(msg.Process)
			}
			j.watch(RankEvent{Rank: msg.Process, Host: h.name, PID: msg.PID})
			j.decide(elastic.Started{Process: msg.Process})
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
		if h.failure == nil {
			h.failure = &HostError{Host: h.name, Step: "run", Err: errors.New("the daemon ended before its ranks"), Code: ExitTransport}
		}
		j.decide(elastic.HostLost{Host: h.id, Reason: cmp.Or(h.lostWhy, "it has ended"), Ended: true})
	}
}

// owns checks what a daemon says about processes: it may only speak of its own. Here they are numbered as the
// ranks of the first world.
func (j *job) owns(h *host, process int) bool {
	return process >= 0 && process < len(j.hostOfRank) && j.hostOfRank[process] == h.id
}

func (j *job) rankExited(h *host, e *wire.Exited) {
	if j.exited[e.Process] { // a launcher that took over may hear of it once more
		return
	}
	j.spec.Output.Close(e.Process)
	j.watch(RankEvent{Rank: e.Process, Host: h.name, Ended: true, Code: e.Code, Signal: e.Signal})
	j.started[e.Process], j.exited[e.Process] = true, true
	switch {
	case e.Asked:
		h.failure = cmp.Or(h.failure, &HostError{Host: h.name, Step: "run", Err: errors.New("the daemon has stopped its ranks by itself"), Code: ExitTransport})
	case e.Code != 0:
		j.change.failures[e.Process] = failureOf(h, e)
	}
	j.decide(elastic.Exited{Process: e.Process, Code: e.Code, Asked: e.Asked})
	j.fence.check(j)
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
	lost := h
	if f.Peer >= 0 && f.Peer < len(j.hosts) {
		lost = j.hosts[f.Peer]
	}
	j.evict(lost, &HostError{Host: lost.name, Step: f.Step, Err: errors.New(f.Text), Hint: f.Hint, Code: f.Code}, lost == h)
}

// hostsFailed reports the hosts that have failed, in the order of the host list. While the job starts, hosts that have not
// answered by then are named beside them: they may be slow, or be the next to fail. One that is silent may be why others failed.
func (j *job) hostsFailed(e elastic.End) error {
	if e.Hosts == nil {
		e.Hosts = []int{e.Host}
	}
	if e.Starting {
		for h, since := range j.silentHosts(time.Now()) {
			if h.failure == nil {
				h.failure = silentError(h, since)
				e.Hosts = append(e.Hosts, h.id)
			}
		}
	}
	slices.Sort(e.Hosts)
	report := &HostErrors{Hosts: len(j.hosts)}
	for _, id := range e.Hosts {
		h := j.hosts[id]
		if h.failure == nil {
			h.failure = &HostError{Host: h.name, Step: "run", Err: errors.New(e.Why), Code: ExitTransport}
		}
		report.Failed = append(report.Failed, h.failure)
	}
	for _, h := range j.hosts {
		switch {
		case !e.Starting || j.up[h.id] || j.ended[h.id] || h.failure != nil:
		case h.answered.Load():
			report.Late = append(report.Late, h.name)
		default:
			report.Silent = append(report.Silent, h.name)
		}
	}
	if len(report.Failed)+len(report.Silent)+len(report.Late) == 1 {
		return report.Failed[0]
	}
	return report
}

// divided reports ranks of which some wait for a new world and the others have ended.
func (j *job) divided() error {
	var waiting []int
	for rank := range j.hostOfRank {
		if !j.exited[rank] {
			waiting = append(waiting, rank)
		}
	}
	return fmt.Errorf("start a new world: %s called init again, but %s ended", listRanks(waiting), listRanks(slices.Sorted(maps.Keys(j.exited))))
}

func (j *job) index(name string) int {
	return slices.IndexFunc(j.hosts, func(h *host) bool { return h.name == name })
}

// startTimedOut names the hosts that keep a start which takes too long from its end.
func (j *job) startTimedOut() {
	now := time.Now()
	if j.suspended(now) {
		return
	}
	silent := j.silentHosts(now)
	var failed []int
	for _, h := range j.hosts {
		if h.failure == nil {
			h.failure = j.lateness(h, silent[h], len(silent) > 0)
		}
		if h.failure != nil {
			failed = append(failed, h.id)
		}
	}
	if len(failed) > 0 {
		j.decide(elastic.StartFailed{Hosts: failed})
	}
}

// lateness returns for what a host is to answer in a start that takes too long, nil for nothing. It has been silent for so long,
// and others may be.
func (j *job) lateness(h *host, silent time.Duration, others bool) *HostError {
	e := &HostError{Host: h.name, Code: ExitTransport, Hint: "give it more time with --start-timeout"}
	later := j.change.policy.Later()
	switch {
	case silent > 0:
		return silentError(h, silent)
	case others && j.up[h.id]:
		return nil // it waits for those
	case !j.up[h.id] && h.answered.Load():
		e.Step, e.Err = "start daemon", fmt.Errorf("the host answers, but no daemon runs there after %v", j.spec.StartTimeout)
		e.Hint = "is the host busy, or the way to it slow? Give it more time with --start-timeout"
	case !j.up[h.id]:
		e.Step, e.Err = "connect", fmt.Errorf("no answer within %v", j.spec.StartTimeout)
		e.Hint = "is the host up, the address right and the port open in the firewall? Or give it more time with --start-timeout"
	case j.ready[h.id] == nil:
		e.Step, e.Err = "probe", fmt.Errorf("the daemon is not ready after %v", j.spec.StartTimeout)
	case j.worlds[h.id].Epoch == 0 && len(j.ready) == len(j.hosts) && !later:
		e.Step, e.Err = "join", fmt.Errorf("the hosts could not form a world within %v", j.spec.StartTimeout)
		e.Hint = "hosts must reach each other directly: check firewalls between them, and by gorun doctor whether large packets are lost on the way"
	case (j.worlds[h.id].Epoch > 0 || later) && j.waitsForRanks(h):
		e.Step, e.Err = "start ranks", fmt.Errorf("not all of its ranks run after %v", j.spec.StartTimeout)
		e.Hint = "is the program, or the working directory, on a file system that does not answer?"
	default:
		return nil
	}
	return e
}

// waitsForRanks reports whether ranks of a host have not started that are to run there.
func (j *job) waitsForRanks(h *host) bool {
	ranks := h.ranks.Load()
	return ranks != nil && slices.ContainsFunc(*ranks, func(r wire.Rank) bool { return !j.started[r.Process] })
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

// stop ends the job with a verdict; the first verdict stands.
func (j *job) stop(verdict error) {
	if j.stopping {
		return
	}
	j.stopping, j.verdict = true, verdict
	j.broadcast(&wire.Stop{Interrupt: errors.Is(verdict, ErrInterrupted)})
	if verdict != nil {
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
	for _, id := range j.change.policy.Failed() {
		if e := j.hosts[id].failure; e != nil && !j.stopping {
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

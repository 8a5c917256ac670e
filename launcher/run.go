package launcher

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"gorun/launcher/plan"
	"gorun/rendezvous/wire"
	"gorun/topology"
)

// ErrStopped is the cause of a job that was ended from outside (Ctrl-C) and not by one of its ranks.
var ErrStopped = errors.New("stopped")

const (
	// settle is how long a failing start waits for the other hosts, so that one report names all of them.
	settle = 5 * time.Second
	// patience is how much longer than their grace daemons may take to stop; haste is all that a second
	// Ctrl-C leaves them.
	patience = 10 * time.Second
	haste    = time.Second
)

// Run runs the job and returns nil when every rank exited with 0. Otherwise the error says why:
// *RankError, *HostError, HostErrors, or the cause of ctx. When it returns, every daemon has ended or
// its connection is closed, which ends it.
func Run(ctx context.Context, spec Spec) error {
	j, err := newJob(&spec)
	if err != nil {
		return err
	}
	talk, hangUp := context.WithCancel(context.Background())
	defer hangUp()
	var wg sync.WaitGroup
	for _, h := range j.hosts {
		wg.Go(func() { h.talk(talk, j.events) })
	}
	err = j.loop(ctx)
	hangUp()
	if len(j.ended) < len(j.hosts) {
		spec.Output.Abandon() // a terminal that takes nothing may be what keeps them
	}
	wg.Wait()
	return err
}

// job is the launcher's state; only loop touches it once Run has started the conversations.
type job struct {
	spec   *Spec
	hosts  []*host
	events chan event

	up, ended  map[int]bool
	ready      map[int]*wire.Ready
	worlds     map[int]wire.World
	started    map[int]bool
	exited     map[int]bool
	committed  bool
	failures   []*HostError
	verdict    error
	stopping   bool
	settleC    <-chan time.Time
	inspectC   <-chan time.Time // when we no longer wait for what daemons find
	inspected  map[int]*wire.Inspected
	hostOfRank []int
	fence      fence
	stalls     stalls
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
		worlds: map[int]wire.World{}, started: map[int]bool{}, exited: map[int]bool{}, inspected: map[int]*wire.Inspected{}, hostOfRank: make([]int, len(spec.Placement.Ranks))}
	var names []string
	for _, h := range spec.Placement.Hosts {
		names = append(names, h.Name)
	}
	for hid, ph := range spec.Placement.Hosts {
		msg := wire.Job{ID: hex.EncodeToString(id), Secret: secret, HostID: hid, Hosts: names, Size: len(spec.Placement.Ranks),
			Argv: spec.Argv, Dir: spec.Dir, Shim: spec.Shim, Verbose: spec.Verbose, GraceMS: int(spec.Grace.Milliseconds()),
			Wrapper: spec.Wrapper, Streams: spec.Streams, Algorithm: spec.Algorithm, RingOrder: spec.RingOrder, Topology: spec.Topology, NICs: spec.NICs, GPUs: spec.GPUs, TF: spec.TF, Toward: towards(names, hid)}
		for _, rank := range ph.Ranks {
			r := spec.Placement.Ranks[rank]
			msg.Ranks = append(msg.Ranks, wire.Rank{Rank: rank, LocalRank: r.LocalRank, CrossRank: r.CrossRank, CrossSize: r.CrossSize,
				Env: spec.Placement.Env(rank, msg.ID)})
			if len(spec.Programs) > 0 {
				p := spec.ProgramOf(rank)
				last := &msg.Ranks[len(msg.Ranks)-1]
				last.Argv, last.Dir, last.Env = p.Argv, p.Dir, append(last.Env, p.Env...)
			}
			j.hostOfRank[rank] = hid
		}
		j.hosts = append(j.hosts, &host{id: hid, name: ph.Name, job: msg, spec: spec, queue: newMailbox()})
	}
	return j, nil
}

// ProgramOf returns the program of a rank.
func (s *Spec) ProgramOf(rank int) Program {
	for _, p := range s.Programs {
		if rank < p.Ranks {
			return p
		}
		rank -= p.Ranks
	}
	return Program{Argv: s.Argv, Dir: s.Dir}
}

// towards names another host, so that a daemon can tell which of its addresses leads there.
func towards(names []string, self int) string {
	for i, n := range names {
		if i != self {
			return n[strings.LastIndexByte(n, '@')+1:]
		}
	}
	return ""
}

func (h *host) env(remote bool) []string { return plan.UserEnv(h.spec.Env, remote) }

// loop handles one event at a time until every conversation has ended.
func (j *job) loop(ctx context.Context) error {
	startup := time.NewTimer(j.spec.StartTimeout)
	defer startup.Stop()
	done, hurry, signals := ctx.Done(), j.spec.Hurry, j.spec.Signals
	var timeout <-chan time.Time
	if j.spec.Timeout > 0 {
		t := time.NewTimer(j.spec.Timeout)
		defer t.Stop()
		timeout = t.C
	}
	var last <-chan time.Time // after a stop: when we no longer wait for a daemon
	for len(j.ended) < len(j.hosts) {
		j.report()
		select {
		case ev := <-j.events:
			j.handle(ev)
		case <-done:
			done = nil
			j.stop(context.Cause(ctx))
		case <-hurry:
			hurry = nil
			j.stop(ErrStopped)
			j.broadcast(&wire.Stop{Now: true})
			last = time.After(haste)
		case n := <-signals:
			j.broadcast(&wire.Signal{Number: n})
		case <-startup.C:
			if !j.allStarted() {
				j.startTimedOut()
			}
		case <-j.stalls.timeout:
			j.judgeStalls()
		case <-j.settleC:
			j.giveUp()
		case <-timeout:
			j.inspect()
		case <-j.inspectC:
			j.timedOut()
		case <-last:
			return j.verdict // closing the connections ends what is left
		}
		if j.stopping && last == nil {
			last = time.After(j.spec.Grace + patience)
		}
	}
	return j.verdict
}

func (j *job) handle(ev event) {
	h := j.hosts[ev.host]
	switch {
	case ev.err != nil:
		j.ended[ev.host] = true
		j.hostFailed(ev.err)
	case ev.up:
		j.up[ev.host] = true
		if j.stopping {
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
			j.sendRoster()
		case len(j.failures) > 0 && j.decided():
			j.giveUp()
		}
	case *wire.Committed:
		if slices.ContainsFunc(msg.World.Order, func(id int) bool { return id < 0 || id >= len(j.hosts) }) {
			j.hostFailed(&HostError{Host: h.name, Step: "join", Err: fmt.Errorf("the daemon reports a world of unknown hosts %v", msg.World.Order)})
			return
		}
		j.worlds[h.id] = msg.World
		if h.id == 0 && j.spec.Stdin != nil {
			go forwardStdin(j.spec.Stdin, &h.queue) // a read from a terminal cannot be interrupted: not waited for
		}
		if !j.committed {
			j.committed = true
			j.showRing(msg.World)
		}
	case *wire.Started:
		if j.owns(h, msg.Rank) {
			j.started[msg.Rank] = true
			j.watch(RankEvent{Rank: msg.Rank, Host: h.name, PID: msg.PID})
		}
	case *wire.Exited:
		if j.owns(h, msg.Rank) {
			j.rankExited(h, msg)
		}
	case *wire.Failed:
		j.daemonFailed(h, msg)
	case *wire.Fence:
		j.fence.arrive(j, h, msg)
	case *wire.Inspected:
		j.inspected[h.id] = msg
		if j.inspectC != nil && len(j.inspected) >= len(j.up) {
			j.timedOut()
		}
	case *wire.Taken:
		select {
		case <-h.queue.room:
		default: // it acknowledges what was never sent: nothing to make room for
		}
	case *wire.Stalled:
		j.stalled(h, msg)
	case *wire.Log:
		j.spec.Note("gorun: %s: %s", h.name, msg.Text)
	case *wire.Done:
		j.ended[h.id] = true
	}
}

// owns checks what a daemon says about ranks: it may only speak of its own.
func (j *job) owns(h *host, rank int) bool {
	return rank >= 0 && rank < len(j.hostOfRank) && j.hostOfRank[rank] == h.id
}

func (j *job) rankExited(h *host, e *wire.Exited) {
	j.spec.Output.Close(e.Rank)
	j.watch(RankEvent{Rank: e.Rank, Host: h.name, Ended: true, Code: e.Code, Signal: e.Signal})
	j.started[e.Rank], j.exited[e.Rank] = true, true
	if e.Code != 0 && !e.Asked && !j.stopping {
		j.stop(&RankError{Rank: e.Rank, Host: h.name, Code: e.Code, Signal: e.Signal, Reason: e.Error, Tail: j.spec.Output.Tail(e.Rank)})
	}
	if len(j.exited) == len(j.hostOfRank) {
		j.stop(nil)
	}
}

func (j *job) watch(e RankEvent) {
	if j.spec.Watch != nil {
		j.spec.Watch(e)
	}
}

// daemonFailed takes a daemon's word about itself or about a peer that it lost.
func (j *job) daemonFailed(h *host, f *wire.Failed) {
	e := &HostError{Host: h.name, Step: f.Step, Err: errors.New(f.Text), Hint: f.Hint, Code: f.Code}
	if f.Peer >= 0 && f.Peer < len(j.hosts) && f.Peer != h.id {
		e.Host = j.hosts[f.Peer].name
		j.ended[f.Peer] = true // nobody will hear of it again
	}
	j.hostFailed(e)
}

// hostFailed gathers failures while the job starts, so that a report names all hosts at once; a host
// that is lost while ranks run decides at once.
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
	if j.allStarted() || j.decided() {
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
		_, ready := j.ready[h.id]
		if !ready && !j.ended[h.id] && !j.failed(h.name) {
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

// giveUp reports what failed, and which hosts have not answered by then, in the order of the host list.
func (j *job) giveUp() {
	j.settleC = nil
	if !j.allStarted() {
		for _, h := range j.hosts {
			if !j.up[h.id] && !j.ended[h.id] && !j.failed(h.name) {
				j.failures = append(j.failures, &HostError{Host: h.name, Step: "connect", Err: errors.New("no answer yet"), Code: ExitTransport})
			}
		}
	}
	slices.SortStableFunc(j.failures, func(a, b *HostError) int { return j.index(a.Host) - j.index(b.Host) })
	if len(j.failures) == 1 {
		j.stop(j.failures[0])
		return
	}
	j.stop(&HostErrors{Hosts: len(j.hosts), Failed: j.failures})
}

func (j *job) index(name string) int {
	return slices.IndexFunc(j.hosts, func(h *host) bool { return h.name == name })
}

func (j *job) startTimedOut() {
	for _, h := range j.hosts {
		if j.failed(h.name) {
			continue
		}
		e := &HostError{Host: h.name, Code: ExitTransport, Hint: "give it more time with --start-timeout"}
		switch {
		case !j.up[h.id]:
			e.Step, e.Err = "connect", fmt.Errorf("no answer within %v", j.spec.StartTimeout)
		case j.ready[h.id] == nil:
			e.Step, e.Err = "probe", fmt.Errorf("the daemon is not ready after %v", j.spec.StartTimeout)
		case j.worlds[h.id].Epoch == 0 && len(j.ready) == len(j.hosts):
			e.Step, e.Err = "join", fmt.Errorf("the hosts could not form a world within %v", j.spec.StartTimeout)
			e.Hint = "hosts must reach each other directly: check firewalls between them"
		case j.worlds[h.id].Epoch > 0 && j.waitsForRanks(h):
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

func (j *job) sendRoster() {
	r := &wire.Roster{}
	for _, h := range j.hosts {
		ready := j.ready[h.id]
		r.Peers = append(r.Peers, wire.Peer{Name: h.name, Gossip: ready.Gossip, Data: ready.Data, Ports: ready.Ports, Ranks: j.spec.Placement.Hosts[h.id].Ranks})
	}
	first := j.ready[0]
	if len(first.Data) > 0 {
		r.MasterAddr, _, _ = net.SplitHostPort(first.Data[0])
	}
	r.MasterPort, r.KVPort = first.Port, first.KVPort
	j.broadcast(r)
}

func (j *job) showRing(w wire.World) {
	if !j.spec.Verbose {
		return
	}
	hosts := make([]topology.Host, len(j.hosts))
	for i, h := range j.hosts {
		hosts[i] = j.ready[i].Host
		hosts[i].Name = h.name
	}
	for _, line := range describeRing(hosts, w) {
		j.spec.Note("gorun: %s", line)
	}
}

func (j *job) allStarted() bool { return len(j.started) == len(j.hostOfRank) }

// stop ends the job with a verdict; the first verdict stands.
func (j *job) stop(verdict error) {
	if j.stopping {
		return
	}
	j.stopping, j.verdict = true, verdict
	j.broadcast(&wire.Stop{})
	if verdict != nil && !j.allStarted() {
		// Hosts that were not reached yet have nothing to stop: do not wait for them.
		for _, h := range j.hosts {
			if !j.up[h.id] {
				j.ended[h.id] = true
			}
		}
	}
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
		j.spec.Progress(Progress{Hosts: len(j.hosts), Reached: len(j.up), Ready: len(j.ready), Started: len(j.started), Ranks: len(j.hostOfRank)})
	}
}

// forwardStdin sends standard input to the host of rank 0.
func forwardStdin(r io.Reader, q *mailbox) {
	buf := make([]byte, 32<<10)
	for {
		n, err := r.Read(buf)
		q.room <- struct{}{}
		q.put(&wire.Stdin{Data: append([]byte(nil), buf[:n]...), EOF: err != nil})
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
	desc := fmt.Sprintf("%s: %d CPUs, %d NUMA node(s)", h.Name, h.CPUs, max(len(h.Nodes), 1))
	if h.Platform != "" {
		desc += ", " + h.Platform
	}
	if len(nics) > 0 {
		desc += ", " + strings.Join(nics, ", ")
	}
	return desc
}

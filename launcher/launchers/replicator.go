package launchers

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"gorun/rendezvous/authority"
	"gorun/rendezvous/standing"
	"gorun/rendezvous/wire"
)

const (
	// closeTimeout is how long Close may take to report the end of the job.
	closeTimeout = 5 * time.Second
	// lookInterval is how often a launcher whose electors all live looks for more of them.
	lookInterval = time.Minute
	// membersTimeout is how long a daemon may take to list the cluster's members.
	membersTimeout = 3 * time.Second
)

// replication is what a Replicator needs of its launcher.
type replication struct {
	Client standing.Client
	Self   string // the launcher's host
	Home   string // the address of a daemon that knows the cluster's members
	Lease  time.Duration
	// Shares returns the slots that the job holds.
	Shares func() []wire.Share
	Note   func(format string, args ...any)
	// Superseded is called when another launcher has taken over, with its term. The Replicator's lock is held.
	Superseded func(term uint64)
}

// Replicator sends a job's snapshots to its electors. It implements launcher.Replicator.
//
// Before Start, the user who started the job learns of its failure from the launcher itself, so no successor may
// appear: no elector hears of the job, and every snapshot counts as safe at once. All of it is in the first value that
// electors get. Without that value they know nothing, so a successor begins with it or there is none.
type Replicator struct {
	replication
	began   time.Time
	numbers chan uint64
	wake    chan struct{}
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu        sync.Mutex
	holder    *authority.Holder
	started   bool
	announced []string // the electors that the user knows
	renewing  bool
	looked    time.Duration // for other electors
	handover  handover
	request   json.RawMessage // of the handover, since that of a program is long
	addrs     map[string]string
	asking    map[asked]bool
	answered  map[string]time.Time // the last answer of each elector
	safe      uint64
}

// asked is an elector that is asked to store a value, or sent a sign of life beside a value that is under way to it.
type asked struct {
	name  string
	value bool
}

// newReplicator returns the Replicator of a job, which continues from a snapshot; the first one of a job has only electors. addrs
// are the addresses of the cluster's members, nil if they are not known.
func newReplicator(job string, from authority.Snapshot, first handover, addrs map[string]string, cfg replication) *Replicator {
	r := &Replicator{replication: cfg, began: time.Now(), numbers: make(chan uint64, 1), wake: make(chan struct{}, 1),
		holder: authority.NewHolder(cfg.Self, job, cfg.Lease, from, 0), announced: from.Electors, handover: first, addrs: addrs,
		asking: map[asked]bool{}, answered: map[string]time.Time{}}
	r.request = encoded(first.Request)
	return r
}

// encoded returns what holds nothing but text and numbers as JSON.
func encoded(what any) []byte {
	text, err := json.Marshal(what)
	if err != nil {
		panic(fmt.Sprintf("gorun: a handover cannot be written: %v", err))
	}
	return text
}

// Start begins to replicate. It must be called once, when the launcher has reported that the job runs or waits.
func (r *Replicator) Start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(context.Background())
	r.started = true
	r.wg.Go(func() { r.run(ctx) })
}

// now is the time of the holder.
func (r *Replicator) now() time.Duration { return time.Since(r.began) }

// Keep implements launcher.Replicator.
func (r *Replicator) Keep(snapshot []byte, lease time.Duration) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holder.Extend(lease)
	r.handover.Launcher = snapshot
	number := r.putLocked(false)
	if !r.started {
		r.deliverLocked(number)
	}
	return number
}

// Kept implements launcher.Replicator.
func (r *Replicator) Kept() <-chan uint64 { return r.numbers }

// Answering implements launcher.Replicator.
func (r *Replicator) Answering(lease time.Duration) (of, left int, limit time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	electors := r.holder.Electors()
	for _, name := range electors {
		if at, ever := r.answered[name]; ever && time.Since(at) < lease {
			left++
		}
	}
	return len(electors), left, authority.SuccessionTimeout
}

// Close reports the end of the job to the electors that answer. It may be called on nil.
func (r *Replicator) Close(code int) {
	if r == nil {
		return
	}
	r.mu.Lock()
	if !r.started {
		r.mu.Unlock()
		return // no elector knows the job
	}
	r.handover.Code = code
	r.handover.forget()
	r.request = encoded(r.handover.Request)
	last := r.putLocked(true)
	done := r.safe >= last
	r.mu.Unlock()
	limit := time.NewTimer(closeTimeout)
	defer limit.Stop()
	for !done {
		select {
		case n := <-r.numbers:
			done = n >= last
		case <-limit.C:
			done = true
		}
	}
	r.cancel()
	r.wg.Wait()
}

func (r *Replicator) putLocked(over bool) uint64 {
	r.handover.Shares = r.Shares()
	number := r.holder.Put(encoded(struct {
		handover
		Request json.RawMessage `json:"request"`
	}{r.handover, r.request}), over)
	r.poke()
	return number
}

func (r *Replicator) poke() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// run sends electors what is new and, at each beat, that this launcher is alive.
func (r *Replicator) run(ctx context.Context) {
	beat := time.NewTicker(min(max(r.Lease/8, 100*time.Millisecond), 5*time.Second))
	defer beat.Stop()
	var asking sync.WaitGroup
	defer asking.Wait()
	for all := true; ; {
		r.send(ctx, all, &asking)
		select {
		case <-beat.C:
			all = true
		case <-r.wake:
			all = false
		case <-ctx.Done():
			return
		}
	}
}

// send asks the electors that miss something, or all of them.
func (r *Replicator) send(ctx context.Context, all bool, asking *sync.WaitGroup) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if all && r.renewDueLocked() && !r.renewing {
		r.renewing = true
		asking.Go(func() { r.renew(ctx) })
	}
	for _, name := range r.holder.Recipients() {
		next := r.holder.Next(name)
		if r.asking[asked{name, true}] { // it may take longer than the lease
			next.Value = nil
		}
		to := asked{name, next.Value != nil}
		if r.asking[to] || !all && !to.value || next.Seq == 0 { // no successor could start from nothing
			continue
		}
		r.asking[to] = true
		addr := r.addrs[name]
		asking.Go(func() { r.ask(ctx, to, addr, next) })
	}
}

// ask gives an elector what it does not have.
func (r *Replicator) ask(ctx context.Context, to asked, addr string, what *wire.Keep) {
	answer, err := r.Client.Keep(ctx, addr, what)
	var known []wire.MemberState
	if err != nil && ctx.Err() == nil { // it may have moved; the next beat tries again
		known = r.members(ctx)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.asking, to)
	if known != nil {
		r.addrs = addressesOf(known)
	}
	if err != nil || !r.heardLocked(to.name, answer) {
		return
	}
	if r.holder.Next(to.name).Value != nil {
		r.poke() // there was more, meanwhile
	}
	if safe := r.holder.Kept(); safe > r.safe {
		r.deliverLocked(safe)
	}
}

// deliverLocked reports the number of the latest snapshot that is safe.
func (r *Replicator) deliverLocked(number uint64) {
	r.safe = number
	select {
	case <-r.numbers: // not read yet, and out of date now
	default:
	}
	r.numbers <- number
}

// heardLocked takes a host's answer. It returns false if another launcher has taken over.
func (r *Replicator) heardLocked(name string, answer *wire.Kept) bool {
	r.answered[name] = time.Now()
	r.holder.Answered(r.now(), name, answer)
	if r.holder.Superseded() {
		r.Superseded(answer.Term)
		return false
	}
	r.announceLocked()
	return true
}

// announceLocked prints who the electors are, if they have changed.
func (r *Replicator) announceLocked() {
	now := r.holder.Electors()
	if len(now)%2 == 1 && r.holder.ElectorsAgreed() && !slices.Equal(now, r.announced) {
		r.announced = now
		r.Note("gorun: %s now elect the next launcher if this one is lost", strings.Join(now, ", "))
	}
}

// renewDueLocked reports whether it is time to look for other electors.
func (r *Replicator) renewDueLocked() bool {
	now := r.now()
	lost, n := r.holder.Lost(now), len(r.holder.Electors())
	if len(lost) == 0 && n%2 == 1 && (n == authority.Most || now-r.looked < lookInterval) {
		return false
	}
	r.looked = now
	return r.holder.ElectorsAgreed()
}

// renew replaces lost electors. It chooses hosts that prove that they can save a snapshot: one may be dead without the
// cluster knowing it, or may live and have a full disk.
func (r *Replicator) renew(ctx context.Context) {
	known := r.members(ctx)
	r.mu.Lock()
	electors := r.holder.Electors()
	r.mu.Unlock()
	addrs := addressesOf(known)
	others := slices.DeleteFunc(eligible(r.Self, hostsOf(r.Shares()), known), func(name string) bool {
		return slices.Contains(electors, name)
	})
	var willing []string
	for _, name := range others {
		if len(willing) < authority.Most-authority.Fewest && r.invite(ctx, name, addrs[name]) {
			willing = append(willing, name)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.renewing = false
	if known != nil {
		r.addrs = addrs
	}
	if r.holder.Renew(r.now(), willing) {
		r.poke()
	}
}

// invite sends a host what electors get, and reports whether the host has saved it.
func (r *Replicator) invite(ctx context.Context, name, addr string) bool {
	r.mu.Lock()
	next := r.holder.Next(name)
	r.mu.Unlock()
	answer, err := r.Client.Invite(ctx, addr, next)
	if err != nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.heardLocked(name, answer)
}

// members returns the hosts of the cluster, nil if it cannot be asked.
func (r *Replicator) members(ctx context.Context) []wire.MemberState {
	return membersOf(ctx, r.Client, r.Home)
}

// membersOf asks the daemon at home for the hosts of the cluster, and returns nil if it does not answer in time.
func membersOf(ctx context.Context, client standing.Client, home string) []wire.MemberState {
	ctx, cancel := context.WithTimeout(ctx, membersTimeout)
	defer cancel()
	known, err := client.Members(ctx, home)
	if err != nil {
		return nil
	}
	return known.Members
}

// Term returns the term of this launcher.
func (r *Replicator) Term() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holder.Term()
}

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"gorun/launcher"
	"gorun/launcher/jobs"
	"gorun/launcher/plan"
	"gorun/rendezvous/authority"
	"gorun/rendezvous/standing"
	"gorun/rendezvous/wire"
)

const (
	// lastWord is how long a launcher tries to say that its job has ended.
	lastWord = 5 * time.Second
	// lookAround is how often a launcher whose electors all live looks for more of them.
	lookAround = time.Minute
	// invitation is how long a host may take to answer that is to be an elector.
	invitation = 2 * time.Second
)

// eligible are the hosts that could decide who carries a job on, the best first: the launcher's, those of the ranks, and others.
func eligible(self string, ranks []string, members []wire.MemberState) []string {
	var known []string
	for _, m := range members {
		if !m.Draining {
			known = append(known, m.Host)
		}
	}
	slices.SortStableFunc(known, func(a, b string) int {
		first := func(name string) int {
			switch {
			case name == self:
				return 0
			case slices.Contains(ranks, name):
				return 1
			}
			return 2
		}
		return cmp.Or(first(a)-first(b), strings.Compare(a, b))
	})
	return known
}

// chooseElectors picks the hosts that decide who carries a job on, an odd number. nil if there are too few.
func chooseElectors(self string, ranks []string, members []wire.MemberState) []string {
	known := eligible(self, ranks, members)
	n := min(len(known), authority.Most)
	if n%2 == 0 {
		n--
	}
	if n < authority.Fewest || known[0] != self {
		return nil
	}
	return known[:n]
}

// keeper tells the electors of a job what the next launcher would need, from begin on. It is a launcher.Keeper. Its goroutines
// end with close.
//
// It begins when the launcher has given its word that the job runs, or waits. Until then whoever starts the job hears that this failed if
// the launcher is lost, and nobody else must carry it on: so nobody is told of it, and what is decided counts as safe at once. All of that is in
// the first value that electors get, and they know nothing without that, so a later launcher begins with it or there is none.
type keeper struct {
	client  standing.Client
	self    string // the launcher's host
	home    string // a daemon that knows where the others are
	lease   time.Duration
	shares  func() []wire.Share
	note    func(format string, args ...any)
	stand   func(term uint64) // down, for another launcher has taken over
	began   time.Time
	numbers chan uint64
	wake    chan struct{}
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu       sync.Mutex
	holder   *authority.Holder
	begun    bool
	told     []string // electors, as the user knows them
	renewing bool
	looked   time.Duration // for other electors
	left     bequest
	addrs    map[string]string
	asking   map[string]bool
	answered map[string]time.Time // when each elector did last
	kept     uint64
}

// now is the time of the holder.
func (k *keeper) now() time.Duration { return time.Since(k.began) }

// hold makes the holder, for a job as its former launcher left it.
func (k *keeper) hold(job string, from authority.Snapshot) {
	k.began, k.told = time.Now(), from.Electors
	k.holder = authority.NewHolder(k.self, job, k.lease, from, 0)
	k.numbers, k.wake, k.asking = make(chan uint64, 1), make(chan struct{}, 1), map[string]bool{}
	k.answered = map[string]time.Time{}
}

// begin has the electors told.
func (k *keeper) begin() {
	k.mu.Lock()
	defer k.mu.Unlock()
	var ctx context.Context
	ctx, k.cancel = context.WithCancel(context.Background())
	k.begun = true
	k.wg.Go(func() { k.run(ctx) })
}

// Keep implements launcher.Keeper.
func (k *keeper) Keep(legacy []byte, lease time.Duration) uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.holder.Extend(lease)
	k.left.Launcher = legacy
	number := k.put(false)
	if !k.begun {
		k.deliver(number)
	}
	return number
}

// Kept implements launcher.Keeper.
func (k *keeper) Kept() <-chan uint64 { return k.numbers }

// Answering implements launcher.Keeper.
func (k *keeper) Answering(lease time.Duration) (of, left int, patience time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	electors := k.holder.Electors()
	for _, name := range electors {
		if at, ever := k.answered[name]; ever && time.Since(at) < lease {
			left++
		}
	}
	return len(electors), left, authority.SuccessionTimeout
}

// put is called with the lock held.
func (k *keeper) put(over bool) uint64 {
	k.left.Shares = k.shares()
	text, err := json.Marshal(k.left)
	if err != nil {
		panic(fmt.Sprintf("gorun: a bequest cannot be written: %v", err)) // it holds nothing but text and numbers
	}
	number := k.holder.Put(text, over)
	k.poke()
	return number
}

func (k *keeper) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run says that this launcher lives, and what is new.
func (k *keeper) run(ctx context.Context) {
	beat := time.NewTicker(min(max(k.lease/8, 100*time.Millisecond), 5*time.Second))
	defer beat.Stop()
	var asking sync.WaitGroup
	defer asking.Wait()
	for all := true; ; {
		k.mu.Lock()
		if all {
			if k.wanted() && !k.renewing {
				k.renewing = true
				asking.Go(func() { k.renew(ctx) })
			}
		}
		for _, name := range k.holder.Recipients() {
			next := k.holder.Next(name)
			if k.asking[name] || !all && next.Value == nil || next.Seq == 0 { // nobody could begin a launcher with nothing
				continue
			}
			k.asking[name] = true
			addr := k.addrs[name]
			asking.Go(func() { k.ask(ctx, name, addr, next) })
		}
		k.mu.Unlock()
		select {
		case <-beat.C:
			all = true
		case <-k.wake:
			all = false
		case <-ctx.Done():
			return
		}
	}
}

// ask gives an elector what it does not have.
func (k *keeper) ask(ctx context.Context, name, addr string, what *wire.Keep) {
	answer, err := k.client.Keep(ctx, addr, what)
	var addrs map[string]string
	if err != nil && ctx.Err() == nil { // it may be elsewhere now; the next beat tries again
		addrs = k.members(ctx)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.asking, name)
	if addrs != nil {
		k.addrs = addrs
	}
	if err != nil {
		return
	}
	if !k.hear(name, answer) {
		return
	}
	if k.holder.Next(name).Value != nil {
		k.poke() // there was more, meanwhile
	}
	if kept := k.holder.Kept(); kept > k.kept {
		k.deliver(kept)
	}
}

// deliver says what is safe. It is called with the lock held.
func (k *keeper) deliver(number uint64) {
	k.kept = number
	select {
	case <-k.numbers: // nobody has read it: it is old now
	default:
	}
	k.numbers <- number
}

// hear takes a host's answer. It is false if this launcher is one no more. It is called with the lock held.
func (k *keeper) hear(name string, answer *wire.Kept) bool {
	k.answered[name] = time.Now()
	k.holder.Answered(k.now(), name, answer)
	if k.holder.Superseded() {
		k.stand(answer.Term)
		return false
	}
	k.tell()
	return true
}

// wanted is true when it is time to look for other electors. It is called with the lock held.
func (k *keeper) wanted() bool {
	now := k.now()
	lost, n := k.holder.Lost(now), len(k.holder.Electors())
	if len(lost) == 0 && n%2 == 1 && (n == authority.Most || now-k.looked < lookAround) {
		return false
	}
	k.looked = now
	return k.holder.ElectorsAgreed()
}

// renew replaces electors that are lost by hosts that take what electors are told: one may be gone, which the cluster does not
// know yet, or live and be unable to save anything.
func (k *keeper) renew(ctx context.Context) {
	known := k.membership(ctx)
	k.mu.Lock()
	electors := k.holder.Electors()
	k.mu.Unlock()
	var ranks []string
	for _, s := range k.shares() {
		ranks = append(ranks, s.Host)
	}
	addrs := addressesOf(known)
	others := slices.DeleteFunc(eligible(k.self, ranks, known), func(name string) bool { return slices.Contains(electors, name) })
	spares := firstOf(authority.Most-authority.Fewest, others, func(name string) bool { return k.invite(ctx, name, addrs[name]) })
	k.mu.Lock()
	defer k.mu.Unlock()
	k.renewing = false
	if known != nil {
		k.addrs = addrs
	}
	if k.holder.Renew(k.now(), spares) {
		k.poke()
	}
}

// invite tells a host what electors are told. It is true if that host has it now.
func (k *keeper) invite(ctx context.Context, name, addr string) bool {
	k.mu.Lock()
	next := k.holder.Next(name)
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, invitation)
	defer cancel()
	answer, err := k.client.Keep(ctx, addr, next)
	if err != nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.hear(name, answer)
}

// firstOf are the first n names that answer, fewer if there are no more. No more of them are asked at once, or have answered, than that.
func firstOf(n int, names []string, ask func(name string) bool) (out []string) {
	for len(out) < n && len(names) > 0 {
		asked := names[:min(n-len(out), len(names))]
		names = names[len(asked):]
		answers := make([]bool, len(asked))
		var wg sync.WaitGroup
		for i, name := range asked {
			wg.Go(func() { answers[i] = ask(name) })
		}
		wg.Wait()
		for i, name := range asked {
			if answers[i] {
				out = append(out, name)
			}
		}
	}
	return out
}

// tell says who the electors are if they have changed. It is called with the lock held.
func (k *keeper) tell() {
	if now := k.holder.Electors(); len(now)%2 == 1 && k.holder.ElectorsAgreed() && !slices.Equal(now, k.told) {
		k.told = now
		k.note("gorun: %s decide from now on who carries the job on if this launcher is lost", strings.Join(now, ", "))
	}
}

// members is where the hosts of the cluster are, nil if it cannot be asked.
func (k *keeper) members(ctx context.Context) map[string]string {
	known := k.membership(ctx)
	if known == nil {
		return nil
	}
	return addressesOf(known)
}

func (k *keeper) membership(ctx context.Context) []wire.MemberState {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	known, err := k.client.Members(ctx, k.home)
	if err != nil {
		return nil
	}
	return known.Members
}

func addressesOf(members []wire.MemberState) map[string]string {
	out := map[string]string{}
	for _, m := range members {
		out[m.Host] = m.Addr
	}
	return out
}

// close says that the job has ended, to those who can be reached.
func (k *keeper) close(code int) {
	if k == nil {
		return
	}
	k.mu.Lock()
	if !k.begun {
		k.mu.Unlock()
		return // nobody knows of the job
	}
	k.left.Code, k.left.Launcher = code, nil // and with it the job's secret
	last := k.put(true)
	done := k.kept >= last
	k.mu.Unlock()
	limit := time.NewTimer(lastWord)
	defer limit.Stop()
	for !done {
		select {
		case n := <-k.numbers:
			done = n >= last
		case <-limit.C:
			done = true
		}
	}
	k.cancel()
	k.wg.Wait()
}

// keep has other hosts of the cluster ready to carry the job on, if there are enough of them.
func (d *detached) keep(ctx context.Context, client standing.Client, spec *launcher.Spec, lease *standing.Lease, p plan.Placement) error {
	if d == nil || d.hosted.keyFile == "" || lease == nil || d.request == nil {
		return nil
	}
	known, err := client.Members(ctx, d.hosted.addr)
	if err != nil {
		return fmt.Errorf("find hosts that could carry the job on: %w", err)
	}
	k := &keeper{client: client, self: d.hosted.name, home: d.hosted.addr, note: spec.Note, lease: cmp.Or(spec.Lease, spec.Timing().Lease), shares: lease.Shares, addrs: addressesOf(known.Members), stand: d.standDown,
		left: bequest{Name: fmt.Sprintf("%s/%d", d.hosted.name, d.record.ID), Started: d.record.Started, Request: d.request}}
	var legacy authority.Snapshot
	if from := d.inherited; from != nil {
		k.lease, legacy, k.left = from.Lease, from.Legacy, from.bequest
		spec.Legacy = from.bequest.Launcher
		spec.Note("gorun: job %s goes on by the launcher on %s, since that on %s is gone; what it wrote until now is there", k.left.Name, d.hosted.name, from.Former)
	} else {
		var ranks []string
		for _, s := range lease.Shares() {
			ranks = append(ranks, s.Host)
		}
		legacy.Electors = chooseElectors(d.hosted.name, ranks, known.Members)
	}
	if legacy.Electors == nil {
		return nil
	}
	k.hold(d.record.Authority, legacy)
	if err := d.save(func(r *jobs.Record) { r.Started, r.Term = k.left.Started, k.holder.Term() }); err != nil {
		return err
	}
	if spec.Elastic != nil {
		spec.Keeper = k
		// Only hosts know whether they have vGPUs, and when they say so their daemons wait already.
		lease.Patience, lease.Silence = max(k.lease, cmp.Or(spec.Lease, spec.Timing().MoveLease))+authority.SuccessionTimeout, k.lease
	}
	if spec.Elastic == nil {
		k.Keep(nil, k.lease)
	}
	d.mu.Lock()
	d.keeper = k
	said := d.ready == nil
	d.mu.Unlock()
	if said { // otherwise say has it begin
		k.begin()
	}
	return nil
}

// mayGoOn is an error in a launcher that should carry on a job which cannot: its world is fixed, and with the former
// launcher a host of it may be gone.
func (d *detached) mayGoOn(elastic bool) error {
	if d == nil || d.inherited == nil || elastic {
		return nil
	}
	from := d.inherited
	key, err := readKey(d.hosted.keyFile)
	if err != nil {
		return err
	}
	client := standing.Client{Key: key, Version: version}
	d.keeper = &keeper{client: client, self: d.hosted.name, home: d.hosted.addr, lease: from.Lease, shares: func() []wire.Share { return nil },
		note: func(string, ...any) {}, stand: d.standDown, left: from.bequest}
	d.keeper.hold(from.Job, from.Legacy)
	d.keeper.addrs = d.keeper.members(context.Background())
	d.keeper.begin() // its last word is that the job is over
	return &launcher.HostError{Host: from.Former, Step: "run", Err: fmt.Errorf("the launcher of job %s, which ran there, is gone, and with it the job", from.bequest.Name),
		Hint: "an elastic job is carried on by another host: gorun --min-np N", Code: launcher.ExitTransport}
}

// standDown ends a launcher in whose place another one has come. It must touch nothing that is the other's now, so
// nothing is cleaned up either; nor may anybody here write after it that the job is something else than moved, so the
// lock is kept.
func (d *detached) standDown(term uint64) {
	fmt.Fprintf(os.Stderr, "gorun: another host carries the job on (launcher %d of it), this launcher stands down\n", term)
	d.mu.Lock()
	d.record.Ended, d.record.Moved = time.Now(), true
	if err := d.job.Save(d.record); err != nil {
		fmt.Fprintln(os.Stderr, "gorun: error:", err) // into the job's output
	}
	os.Exit(launcher.ExitFailure)
}

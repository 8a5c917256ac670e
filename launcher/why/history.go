package why

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gorun/rendezvous/wire"
)

// What the recorded operations show about ranks: which one calls other operations than it did before, and which one is
// mostly the last.

// Learn fills in what the operations of all hosts show about the ranks.
func Learn(all []Finding, ops []Op) {
	lates, moving := late(ops)
	step, _ := pace(ops)
	own, open := map[string][]*Op{}, []*Op{}
	for i := range ops {
		o := &ops[i]
		own[o.Host] = append(own[o.Host], o)
		if o.Outcome == "open" {
			open = append(open, o)
		}
	}
	var crossed []*crossing
	departed := 0
	for i := range all {
		f := &all[i]
		f.Diverged, f.Late, f.Moving, f.Step = "", lates[f.Rank], moving, step
		if f.Behind && f.Waits {
			c := cross(f, own[f.Host], open)
			f.Diverged = c.diverged()
			crossed = append(crossed, c)
			departed += min(len(f.Diverged), 1)
		}
	}
	if len(crossed) < 3 || departed > 0 && 2*departed <= len(crossed) {
		return
	}
	for _, c := range crossed { // of several ranks, most call what is right
		c.Diverged = ""
		if len(c.in) > 0 && len(c.lacks) > 0 && 2*together(crossed, c.in[0].key()) < len(crossed) {
			c.Diverged = c.departs(c.in[0], c.lacks[0])
		}
	}
}

const (
	leastPatience = 1500 * time.Millisecond // daemons look once a second, so a wait is up to a second longer than they know
	mostPatience  = 30_000_000              // after a wait that was a fault itself, in microseconds
)

// Patience returns how long ranks wait at least in a job before the wait is worth a verdict: as long as a step, and three
// times the longest operation until now.
func Patience(ops []Op) time.Duration {
	step, longest := pace(ops)
	return max(leastPatience, time.Duration(max(step, min(3*longest, mostPatience)))*time.Microsecond)
}

// series are the uses of an operation that a host has seen.
type series struct {
	host string
	key
}

// pace returns the time between two uses of an operation, the median, and the longest one of an operation. First uses do not
// count: they wait for what hosts do once.
func pace(ops []Op) (step, longest int64) {
	before, steps := map[series]int64{}, []int64{0}
	for i := range ops {
		o := &ops[i]
		if o.Outcome != "done" || o.First == 0 {
			continue
		}
		s := series{o.Host, o.round()}
		if at, again := before[s]; again {
			steps, longest = append(steps, o.First-at), max(longest, o.Ended-o.First)
		}
		before[s] = o.First
	}
	slices.Sort(steps)
	return steps[len(steps)/2], longest
}

// Lateness is how often a rank was the last one.
type Lateness struct {
	Times int   `json:"times"` // so many operations waited for it, long for the job
	Of    int   `json:"of"`    // of so many that waited long
	Mean  int64 `json:"mean_us"`
}

// key identifies an operation's name.
type key struct {
	epoch, group uint32
	name         string
}

func (o *Op) key() key { return key{o.Epoch, o.Group, o.Name} }

// round is the key without the number that a binding gives to a call without a name.
func (o *Op) round() key {
	if i := strings.LastIndex(o.Name, ".noname."); i >= 0 {
		return key{o.Epoch, o.Group, o.Name[:i]}
	}
	return o.key()
}

// called is the operation in words.
func (o *Op) called() string { return fmt.Sprintf("%s %q", cmp.Or(o.Kind, "operation"), o.Name) }

// at returns when a rank of the host contributed, 0 if it did not.
func (o *Op) at(f *Finding) int64 {
	i := slices.Index(o.Ranks, f.Rank)
	switch {
	case o.First == 0 || i < 0 && len(o.Ranks) > 0 || o.lacks(f):
		return 0
	case i < 0 || i >= len(o.Came):
		return o.First
	}
	return o.First + o.Came[i]
}

func (o *Op) lacks(f *Finding) bool {
	return slices.ContainsFunc(o.Missing, func(a wire.Missing) bool { return a.Host == f.Host && slices.Contains(a.Ranks, f.Rank) })
}

// crossing is a rank that waits for others while they wait for it.
type crossing struct {
	*Finding
	in    []*Op       // unfinished ones that it has called, as its host sees them
	lacks []*Op       // those that wait for it, as hosts see them that wait
	next  map[key]int // how many of its last operations were once done in the same order right before one, at most, and one
	times map[key]int // how often one was done
}

// cross finds out about a rank by the operations of its host and the unfinished ones of all. Others may know less of them.
func cross(f *Finding, own, open []*Op) *crossing {
	c := &crossing{Finding: f, next: map[key]int{}, times: map[key]int{}}
	type call struct {
		at int64
		key
	}
	var done []call
	called := map[key]bool{}
	for _, o := range own {
		switch at := o.at(f); {
		case at > 0 && o.Outcome == "done":
			done = append(done, call{at, o.round()})
		case at > 0 && o.Outcome == "open":
			called[o.key()] = true
			if len(o.Missing) > 0 {
				c.in = append(c.in, o)
			}
		}
	}
	for _, o := range open {
		if o.First > 0 && o.lacks(f) && !called[o.key()] {
			c.lacks = append(c.lacks, o)
		}
	}
	slices.SortStableFunc(done, func(a, b call) int { return cmp.Compare(a.at, b.at) })
	slices.Reverse(done)
	alike := make([]int, len(done)+1) // how many from one on are as the last ones: the Z function
	for i, from, end := 1, 0, 0; i <= len(done); i++ {
		n := 0
		if i < end {
			n = min(end-i, alike[i-from])
		}
		for i+n < len(done) && done[i+n].key == done[n].key {
			n++
		}
		if alike[i] = n; i+n > end {
			from, end = i, i+n
		}
		k := done[i-1].key
		c.next[k] = max(c.next[k], n+1)
		c.times[k]++
	}
	return c
}

// together counts the ranks in an operation.
func together(crossed []*crossing, k key) (n int) {
	for _, c := range crossed {
		if slices.ContainsFunc(c.in, func(o *Op) bool { return o.key() == k }) {
			n++
		}
	}
	return n
}

// diverged describes how the rank departs from its former order of operations: the one that it has not called came next when
// the last operations were done before, for a longer stretch of them than the one that it called, which is not new. It returns
// "" if the rank keeps the order, or if both came next alike.
func (c *crossing) diverged() string {
	for _, due := range c.lacks {
		for _, in := range c.in {
			if n := c.next[in.round()]; 0 < n && n < c.next[due.round()] {
				return c.departs(in, due)
			}
		}
	}
	return ""
}

// departs describes a rank that is in an operation when another one is due.
func (c *crossing) departs(in, due *Op) string {
	called, missed := in.round(), due.round()
	switch n, m := c.next[called], c.next[missed]; {
	case n == m:
		return fmt.Sprintf("calls %s where most others call %s", in.called(), due.called())
	case n == 1 && m > 1: // it never came after what was done last
		return fmt.Sprintf("called %s before %s, which came first until now: it left that call out or changed the order", in.called(), due.called())
	case n > m || c.times[called] > c.times[missed]:
		return fmt.Sprintf("calls %s once more, when others went on to %s: it has more batches than the others, or left that call out", in.called(), due.called())
	}
	rounds := fmt.Sprintf("%d rounds", c.times[missed])
	if c.times[missed] == 1 {
		rounds = "one round"
	}
	return fmt.Sprintf("went on to %s after %s of %s, which others call once more: it has fewer batches than the others, or left one out", in.called(), rounds, due.called())
}

const (
	// The operations of the last moments are judged, in microseconds, or so many if they are fewer.
	recent      = 10_000_000
	leastRecent = 80
	// A rank is late if it is the last one in so many long waits, and in this share of them, and if others wait for it during
	// this share of the time.
	leastLate  = 12
	mostlyLate = 0.8
	lateShare  = 0.2
	// Data may be under way for so many microseconds, and for its bytes at so many per microsecond, where no link is slow.
	soon     = 5000
	slowRate = 25
)

// usesOf returns the uses of the operations of each step, the latest first. Each has one Op of each host.
func usesOf(ops []Op) (uses [][]*Op) {
	type use struct {
		key
		n int // from the latest on
	}
	all, count, hosts, most := map[use][]*Op{}, map[series]int{}, map[string]bool{}, 0
	for i := len(ops) - 1; i >= 0; i-- {
		o := &ops[i]
		if o.Outcome != "done" || o.Last == 0 || o.Began == 0 {
			continue
		}
		s := series{o.Host, o.round()}
		u := use{s.key, count[s]}
		all[u] = append(all[u], o)
		count[s]++
		hosts[o.Host], most = true, max(most, count[s])
	}
	for u, of := range all {
		if len(of) == len(hosts) && 2*count[series{of[0].Host, u.key}] >= most { // all hosts kept it
			uses = append(uses, of)
		}
	}
	slices.SortFunc(uses, func(a, b []*Op) int {
		return cmp.Or(cmp.Compare(b[0].Began, a[0].Began), cmp.Compare(b[0].Number, a[0].Number))
	})
	for i, use := range uses {
		if i >= leastRecent && uses[0][0].Began-use[0].Began > recent {
			return uses[:i]
		}
	}
	return uses
}

// late returns the rank that others mostly wait for. It compares no clocks: each host knows how long it waited for the
// others, so the late rank is the last one on the host that waited least. Of the waits for one operation, those in the upper
// third count no more than the others: a rank that seldom comes late, as one that saves checkpoints, is not late again and
// again. moving is the share of the time in which data was under way for longer than it needs.
func late(ops []Op) (all map[int]*Lateness, moving float64) {
	uses := usesOf(ops)
	if len(uses) < leastLate {
		return nil, 0
	}
	waits, usual, most := map[key][]int64{}, map[key]int64{}, int64(1)
	for _, use := range uses {
		_, by := latest(use)
		waits[use[0].round()] = append(waits[use[0].round()], by)
	}
	for k, of := range waits {
		slices.Sort(of)
		usual[k] = of[len(of)*2/3]
		most = max(most, usual[k])
	}
	all = map[int]*Lateness{}
	sums, long := map[int]int64{}, 0
	begin, end := uses[0][0].First, uses[0][0].Ended
	edge := end // of what was under way later
	for _, use := range uses {
		o := use[0]
		rank, by := latest(use)
		sums[rank] += min(by, usual[o.round()])
		if 2*by >= most {
			all[rank] = cmp.Or(all[rank], &Lateness{})
			all[rank].Times++
			all[rank].Mean += by // as a sum, until it is known how often
			long++
		}
		if len(use) > 1 {
			moving += float64(max(min(o.Ended, edge)-o.Began-soon-o.Bytes/slowRate, 0))
			edge = min(edge, o.Began)
		}
		begin, end = min(begin, o.First), max(end, o.Ended)
	}
	maps.DeleteFunc(all, func(rank int, l *Lateness) bool {
		l.Of, l.Mean = long, l.Mean/int64(l.Times)
		return l.Times < leastLate || float64(l.Times) < mostlyLate*float64(long) || float64(sums[rank]) < lateShare*float64(end-begin)
	})
	return all, moving / float64(max(end-begin, 1))
}

// latest returns the rank that a use of an operation waited for, and how long.
func latest(use []*Op) (rank int, by int64) {
	waited := func(o *Op) int64 {
		if o.Others == 0 {
			return 0
		}
		return o.Others - o.Last
	}
	last := slices.MinFunc(use, func(a, b *Op) int { return cmp.Compare(waited(a), waited(b)) })
	for _, o := range use {
		by = max(by, waited(o))
	}
	if last.FirstRank != last.LastRank {
		by = max(by, last.Last-last.First)
	}
	return last.LastRank, by
}

func (l *Lateness) String() string {
	return fmt.Sprintf("the last one in %d of %d operations, by %v on average", l.Times, l.Of, rounded(l.Mean))
}

// rounded is a time in microseconds as people read it.
func rounded(us int64) time.Duration {
	d := time.Duration(us) * time.Microsecond
	switch {
	case d >= 10*time.Second:
		return d.Round(time.Second)
	case d >= 100*time.Millisecond:
		return d.Round(10 * time.Millisecond)
	case d >= time.Millisecond:
		return d.Round(100 * time.Microsecond)
	default:
		return d
	}
}

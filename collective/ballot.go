package collective

// vote is what one host of a group declared about an operation.
type vote struct {
	set   bool
	later int    // rounds of joining that its host is ahead (join.go)
	raw   []byte // kept for its memory
	ready
}

func (v *vote) clear() { *v = vote{raw: v.raw[:0]} }

// ballot is what the hosts of a group declared about a use of a name. Once the operation starts, votes are what
// the strategy learns from them, and everything is constant.
type ballot struct {
	votes []vote // by position
	next  []vote // the same, for the use after this one
	voted int    // of votes
	ahead int    // of next
	held  bool   // complete while operations pause: not declared yet
	// waiting are contributions to the use after this one, of ranks that had joined (join.go).
	waiting []early
}

// reset makes an empty ballot for a number of hosts.
func (b *ballot) reset(hosts int) {
	b.votes, b.next = resize(b.votes, hosts), resize(b.next, hosts)
	for i := range b.votes {
		b.votes[i].clear()
		b.next[i].clear()
	}
	b.voted, b.ahead, b.held = 0, 0, false
}

// startFrom makes what was declared ahead of time about the use after another ballot's the beginning of this one.
func (b *ballot) startFrom(last *ballot) {
	b.votes, last.next = last.next, b.votes
	b.voted, last.ahead = last.ahead, 0
}

// early is a contribution to the next use of a name.
type early struct {
	index int
	req   Request
}

// real reports whether a host submitted something, instead of having joined as a whole.
func (v *vote) real() bool { return v.kind() != 0 }

// kind returns what the first rank with a contribution submitted, 0 if all joined.
func (v *vote) kind() Kind {
	for rest, n := v.body, v.variants; n > 0; n-- {
		var x variant
		x, rest, _ = readVariant(rest)
		if x.kind() != Join || string(v.name) == joinName {
			return x.kind()
		}
	}
	return 0
}

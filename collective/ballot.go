package collective

// vote is what one host of a group declared about an operation.
type vote struct {
	set   bool
	later int    // rounds of joining that its host is ahead (join.go)
	raw   []byte // kept for its memory
	ready
}

func (v *vote) clear() { *v = vote{raw: v.raw[:0]} }

// ballot is what the hosts of a group declared about a use of a name. The negotiation fills it; operations and
// strategies ask it by its methods. It is constant once the operation starts.
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

// startFrom begins this ballot with the votes for the next use that last has collected.
func (b *ballot) startFrom(last *ballot) {
	b.votes, last.next = last.next, b.votes
	b.voted, last.ahead = last.ahead, 0
}

// What follows is all that operations and strategies ask a ballot. How hosts declare it, and in which bytes, is the
// negotiation's business.

// full reports whether all hosts have declared this use.
func (b *ballot) full() bool { return b.voted == len(b.votes) }

// declared reports whether the host at a position has declared this use.
func (b *ballot) declared(pos int) bool { return b.votes[pos].set }

// ranks returns what the ranks of a host submitted to an operation that all ranks agree on.
func (b *ballot) ranks(pos int) variant {
	v, _, _ := readVariant(b.votes[pos].body)
	return v
}

// room returns the bytes of the largest result that a host has memory for, 0 if there is no limit.
func (b *ballot) room(pos int) uint64 { return b.votes[pos].ready.room }

// inlined returns the contribution of a host to an operation that is inline.
func (b *ballot) inlined(pos int) []byte { return b.votes[pos].inline }

// kind returns the kind that the first host with a contribution declared, 0 if there is no such host.
func (b *ballot) kind() Kind {
	for i := range b.votes {
		if v := &b.votes[i]; v.set && v.real() {
			return v.kind()
		}
	}
	return 0
}

// agreed sets r to what the first rank that has not joined submitted, as far as it was declared, and reports whether
// there is one.
func (b *ballot) agreed(r *Request) bool {
	for pos := range b.votes {
		for v := range b.votes[pos].all() {
			if v.kind() != Join {
				v.read(r)
				return true
			}
		}
	}
	return false
}

// permute puts the votes in another order of hosts; was are the positions that they had.
func (b *ballot) permute(was []int) { b.votes, b.next = permute(b.votes, was), permute(b.next, was) }

// early is a contribution to the next use of a name.
type early struct {
	index int
	req   Request
}

// real reports whether a host submitted something, instead of having joined as a whole.
func (v *vote) real() bool { return v.kind() != 0 }

// kind returns what the first rank with a contribution submitted, 0 if all joined.
func (v *vote) kind() Kind {
	for x := range v.all() {
		if x.kind() != Join || string(v.name) == joinName {
			return x.kind()
		}
	}
	return 0
}

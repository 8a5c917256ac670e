// Package schedule lists who sends which bytes to which host, and what must have happened before: collective
// algorithms as plain lists of steps, one list per position, with the time they would take.
//
// It is pure: no I/O, clock or goroutine, and no knowledge of ranks, memory or links. A position is a
// host's place in the order of the group, 0 to hosts-1. A list is carried out by the engine, which cuts
// every step into segments. If a step and the one that it comes after are about the same bytes, segment k
// waits only for segment k, so that steps overlap; otherwise a step waits for the whole of the other.
package schedule

// Align is the alignment of the borders between chunks: a cache line, and a multiple of every element.
const Align = 64

// Action is what a position does in a step.
type Action uint8

// Actions.
const (
	// Contribute sends what the position itself contributes, which is made from its ranks' inputs just before it goes
	// out. Every byte is in at most one such step of a position.
	Contribute Action = iota
	// Send sends what the step After it left behind.
	Send
	// Add receives a partial result and adds the own contribution.
	Add
	// Finish receives the last partial result and adds the own contribution: the result.
	Finish
	// Take receives a piece of the result.
	Take
	// Collect receives another position's contribution. When the contributions of all positions are there, they are
	// added in the order of positions: the result, with the same bits everywhere.
	Collect
	// Merge receives a partial result of other positions and adds it to what the step After left behind.
	Merge
	// Conclude is a Merge that makes the result.
	Conclude
)

func (a Action) String() string {
	return [...]string{"contribute", "send", "add", "finish", "take", "collect", "merge", "conclude"}[a]
}

// Sends reports whether bytes leave in the step.
func (a Action) Sends() bool { return a == Contribute || a == Send }

// Merges reports whether what is received is added to what an earlier step left behind.
func (a Action) Merges() bool { return a == Merge || a == Conclude }

// Step is one transfer as one of its two ends sees it.
type Step struct {
	Do   Action
	Peer int    // position of the other end
	Tag  uint16 // of a sending step: index of the receiving step in the peer's list
	// After is the index of the earlier step in the same list that this one waits for, -1 for none. A receive may arrive
	// before that one is done, but counts as done after it.
	After  int
	Lo, Hi int64 // the bytes [Lo, Hi) of the operation's buffer
}

// chunk returns the borders of the i-th of n nearly equal chunks.
func chunk(i, n int, size int64) (lo, hi int64) {
	units := (size + Align - 1) / Align
	lo = units * int64(i) / int64(n) * Align
	hi = units * int64(i+1) / int64(n) * Align
	return min(lo, size), min(hi, size)
}

func mod(a, n int) int { return ((a % n) + n) % n }

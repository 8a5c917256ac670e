package schedule

import "math/bits"

// Rung is a level of a Ladder: what is received is combined with what the position has so far.
type Rung struct {
	Receive int  // step that receives the peer's vector
	Send    int  // step that sends what results, -1 for none
	Lower   bool // the peer is the lower position: its vector is the first operand
	Final   bool // what is received is the result
}

// Ladder appends the steps of recursive distance doubling over whole vectors of size bytes, for combinations that need
// a whole vector at once. At the k-th level, positions that are 2ᵏ apart exchange what they have. Each position beyond
// the largest power of two first sends its vector to one of the others, and gets the result in the end. The caller
// carries out the rungs and queues their Send steps; only a Contribute step may be sent at once.
func Ladder(dst []Step, rungs []Rung, hosts, self int, size int64) ([]Step, []Rung) {
	if hosts == 1 || size == 0 {
		return dst, rungs
	}
	levels := bits.Len(uint(hosts)) - 1
	power := 1 << levels
	extras := hosts - power
	step := func(do Action, peer, tag int) int {
		dst = append(dst, Step{Do: do, Peer: peer, Tag: uint16(tag), After: -1, Hi: size})
		return len(dst) - 1
	}
	if self >= power {
		step(Contribute, self-power, 0)
		rungs = append(rungs, Rung{Receive: step(Take, self-power, 0), Send: -1, Final: true})
		return dst, rungs
	}
	// before counts the steps of a position that come before its levels.
	before := func(p int) int {
		if p < extras {
			return 1
		}
		return 0
	}
	first := Contribute
	if self < extras {
		first = Send
		rungs = append(rungs, Rung{Receive: step(Take, self+power, 0), Send: 1})
	}
	for k := range levels {
		peer := self ^ 1<<k
		step(first, peer, before(peer)+2*k+1)
		first = Send
		r := Rung{Receive: step(Take, peer, 0), Send: -1, Lower: peer < self}
		if k < levels-1 {
			r.Send = len(dst)
		}
		rungs = append(rungs, r)
	}
	if self < extras {
		rungs[len(rungs)-1].Send = step(Send, self+power, 1)
	}
	return dst, rungs
}

package schedule

// Rung is a level of a Ladder: what is received is combined with what the position has so far.
type Rung struct {
	Receive int  // step that receives the peer's vector
	Send    int  // step that sends what results, -1 for none
	Lower   bool // the peer is the lower position: its vector is the first operand
	Final   bool // what is received is the result
}

// Ladder appends the steps of RecursiveDoubling over whole vectors of size bytes, for combinations that need a whole
// vector at once. The caller carries out the rungs and queues their Send steps; only a Contribute step may be sent at
// once.
func Ladder(dst []Step, rungs []Rung, hosts, self int, size int64) ([]Step, []Rung) {
	if size == 0 {
		return dst, rungs
	}
	dst = RecursiveDoubling(dst, hosts, self, size)
	for i := range dst {
		s := &dst[i]
		if !s.Do.Sends() {
			rungs = append(rungs, Rung{Receive: i, Send: -1, Lower: s.Peer < self, Final: s.Do == Take})
			s.Do = Take
		} else if s.Do == Send {
			rungs[len(rungs)-1].Send = i
		}
		s.After = -1
	}
	return dst, rungs
}

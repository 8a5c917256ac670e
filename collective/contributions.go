package collective

import "slices"

// contributions are what the ranks of this host submitted to an operation. Engine.mu guards them until it starts;
// then they are constant.
type contributions struct {
	reqs   []Request // by local rank
	splits [][]int   // the memory of theirs
	have   []bool
	count  int
}

// reset makes room for a number of ranks.
func (c *contributions) reset(ranks int) {
	c.reqs, c.have, c.splits = resize(c.reqs, ranks), resize(c.have, ranks), resize(c.splits, ranks)
	clear(c.have)
	c.count = 0
}

// put takes a local rank's contribution.
func (c *contributions) put(index int, r *Request) {
	c.reqs[index], c.have[index] = *r, true
	c.splits[index] = append(c.splits[index][:0], r.Splits...)
	c.reqs[index].Splits = c.splits[index]
	c.count++
}

// agree reports whether all local ranks submitted the same.
func (c *contributions) agree() bool {
	for i := 1; i < len(c.reqs); i++ {
		if !c.reqs[0].agrees(&c.reqs[i]) {
			return false
		}
	}
	return true
}

// lacking reports whether some local ranks submitted nothing, because they joined.
func (c *contributions) lacking() bool { return c.count < len(c.reqs) }

// first returns the first local rank that submitted something, noRank if all of them joined.
func (c *contributions) first() int { return slices.Index(c.have, true) }

// rowsBefore returns the rows of a local rank's input before those for the to-th rank of the group.
func (c *contributions) rowsBefore(index, to int) int64 {
	n := 0
	for _, rows := range c.reqs[index].Splits[:to] {
		n += rows
	}
	return int64(n)
}

// fail ends the requests of all that submitted something.
func (c *contributions) fail(err *Error) {
	for i, have := range c.have {
		if have {
			c.reqs[i].Client.Complete(c.reqs[i].Handle, Result{Err: err})
		}
	}
}

// Local ranks that are none: no rank at all, or all of them.
const (
	noRank   = -1
	allRanks = -2
)

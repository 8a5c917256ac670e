package collective

// Operations in which one rank, the root, has a role of its own. They are special cases of others, and use the same
// strategies: a reduce is a reduce-scatter in which all rows are one rank's; a gather and a scatter are alltoalls in
// which all rows go to the root, or come from it; a send is a broadcast in a group of two.
//
// Hosts need not agree on such a group of two: its number names its ranks, and a host makes it when its own rank or the
// other host first uses the number. There is at most one for each pair of a rank of this host and another rank.

// pairs is set in the numbers of groups of two, whose ranks are in the other bits, the lower one first.
const (
	pairs    = 1 << 31
	pairBits = 15
)

// Pair returns the number of the group of two ranks, the lower one first.
func Pair(lo, hi int) uint32 { return pairs | uint32(lo)<<pairBits | uint32(hi) }

// pair turns a Send or Recv of a rank into its contribution to the operation that both submit.
func (r *Request) pair(rank, size int) *Error {
	lo, hi := min(rank, r.Root), max(rank, r.Root)
	switch {
	case r.Group != 0:
		return refuse("%s %q: ranks meet in the world, not in group %d", r.Kind, r.Name, r.Group)
	case lo < 0 || hi >= size || hi >= 1<<pairBits:
		return refuse("%s %q: there is no rank %d in a world of %d", r.Kind, r.Name, r.Root, size)
	case lo == hi:
		return refuse("%s %q: rank %d cannot send to itself", r.Kind, r.Name, rank)
	}
	r.Group = Pair(lo, hi)
	if r.Kind == Send {
		r.Root = rank
	}
	r.Kind = Send
	return nil
}

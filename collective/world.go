package collective

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"gorun/collective/schedule"
)

// HostRanks is a host of the world and its ranks.
type HostRanks struct {
	ID    int    // the link's name for the peer
	Name  string // for messages
	Ranks []int  // global ranks, in local order
}

// EngineWorld is who takes part in one epoch.
type EngineWorld struct {
	Epoch uint32
	Hosts []HostRanks // in ring order
	Self  int         // position of this host in Hosts
	Size  int         // ranks in all
	// Cost of a message between two of its hosts, the same on all of them. Zero: Config.Cost.
	Cost schedule.Cost
}

func (w EngineWorld) check() error {
	if w.Self < 0 || w.Self >= len(w.Hosts) {
		return fmt.Errorf("position %d of %d hosts", w.Self, len(w.Hosts))
	}
	seen := make([]bool, max(w.Size, 0))
	ids := map[int]bool{}
	count := 0
	for _, h := range w.Hosts {
		if h.ID < 0 || ids[h.ID] {
			return fmt.Errorf("host %s has id %d, which is negative or taken", h.Name, h.ID)
		}
		ids[h.ID] = true
		for _, r := range h.Ranks {
			if r < 0 || r >= w.Size || seen[r] {
				return fmt.Errorf("rank %d on host %s is out of range or there twice", r, h.Name)
			}
			seen[r] = true
			count++
		}
	}
	if count != w.Size {
		return fmt.Errorf("hosts have %d ranks, the world %d", count, w.Size)
	}
	return nil
}

// group is a set of ranks that take part in operations together.
type group struct {
	id    uint32
	hosts []HostRanks // those with ranks in the group, in ring order, with these ranks only
	width int         // how many they are, in any order: may be read while the order changes
	self  int         // position of this host
	ranks []int       // all ranks, ascending
	seats []seat      // where each of them is
	owned [][]int     // the ranks of each position, by their places in ranks
	// exchanges reports whether an alltoall fits the engine: its steps and its ready messages have limits.
	exchanges bool
	splits    []int // scratch memory of a request that is checked
	// gone are members that left: nothing new can start, what their host declared ready may go on.
	gone     []departed
	removed  bool
	notified bool // other hosts know from this one that its ranks declared it
	joining
}

// seat is the place of a rank: the position of its host and its place among that host's ranks.
type seat struct {
	pos, index int
}

// departed is a rank that left, and where it was.
type departed struct {
	rank, pos int
}

// newGroup returns the group of the given ranks of the world, all of them if ranks is nil. It is nil
// where this host has none of them.
func newGroup(w EngineWorld, id uint32, ranks []int) *group {
	g := &group{id: id, self: -1}
	for pos, h := range w.Hosts {
		var mine []int
		for _, r := range h.Ranks {
			if ranks == nil || slices.Contains(ranks, r) {
				mine = append(mine, r)
			}
		}
		if len(mine) == 0 {
			continue
		}
		if pos == w.Self {
			g.self = len(g.hosts)
		}
		g.hosts = append(g.hosts, HostRanks{ID: h.ID, Name: h.Name, Ranks: mine})
		g.ranks = append(g.ranks, mine...)
	}
	slices.Sort(g.ranks)
	g.width = len(g.hosts)
	if g.self < 0 {
		return nil
	}
	g.seats, g.owned = make([]seat, len(g.ranks)), make([][]int, len(g.hosts))
	for pos, h := range g.hosts {
		for index, r := range h.Ranks {
			i, _ := slices.BinarySearch(g.ranks, r)
			g.seats[i] = seat{pos, index}
		}
	}
	for i, seat := range g.seats {
		g.owned[seat.pos] = append(g.owned[seat.pos], i)
	}
	n := len(g.local())
	g.joined, g.pending, g.closed = make([]bool, n), make([]map[string]bool, n), make([]int, len(g.hosts))
	g.exchanges = true
	for _, h := range g.hosts {
		n, all := len(h.Ranks), len(g.ranks)
		declaration := readyHead + MaxName + n*(variantHead+8*maxDims+rankEntry+4*all)
		g.exchanges = g.exchanges && 2*n*(all-n) <= math.MaxUint16 && declaration <= maxControl
	}
	return g
}

// local returns the ranks of this host.
func (g *group) local() []int { return g.hosts[g.self].Ranks }

// position returns the place of the host with the given link id, -1 if it has no part in the group.
func (g *group) position(id int) int {
	return slices.IndexFunc(g.hosts, func(h HostRanks) bool { return h.ID == id })
}

// find returns where a rank is.
func (g *group) find(rank int) (seat, bool) {
	i, ok := slices.BinarySearch(g.ranks, rank)
	if !ok {
		return seat{}, false
	}
	return g.seats[i], true
}

// left returns the error of operations that lack a contribution because d left.
func (g *group) left(kind Kind, name string, d departed) *Error {
	return &Error{Code: CodeShutdown, Text: fmt.Sprintf("%s %q: rank %d on %s left before it submitted its part",
		kind, name, d.rank, g.hosts[d.pos].Name)}
}

func listRanks(ranks []int) string {
	word := "rank "
	if len(ranks) > 1 {
		word = "ranks "
	}
	return word + strings.Trim(strings.ReplaceAll(fmt.Sprint(ranks), " ", ","), "[]")
}

// joining is what a group knows about ranks that joined.
type joining struct {
	joined  []bool            // local ranks
	pending []map[string]bool // by local rank that joined, or removed the group: names under which it still submits
	closed  []int             // by position: rounds that the host ended and this one did not
}

// pend notes the names under which a local rank still submits.
func (g *group) pend(index int, names []string) {
	for _, name := range names {
		if g.pending[index] == nil {
			g.pending[index] = map[string]bool{}
		}
		g.pending[index][name] = true
	}
}

// over reports whether a group was removed, and no contribution of a local rank is pending under that name.
func (g *group) over(name []byte) bool {
	return g.removed && !slices.ContainsFunc(g.pending, func(names map[string]bool) bool { return names[string(name)] })
}

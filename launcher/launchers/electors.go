package launchers

import (
	"cmp"
	"slices"
	"strings"

	"gorun/rendezvous/authority"
	"gorun/rendezvous/wire"
)

// eligible returns the hosts that could be electors, the best first: the launcher's, those with ranks, then others.
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

// chooseElectors picks the electors of a job whose launcher is on self: an odd number of hosts, nil if there are too
// few.
func chooseElectors(self string, shares []wire.Share, members []wire.MemberState) []string {
	known := eligible(self, hostsOf(shares), members)
	n := min(len(known), authority.Most)
	if n%2 == 0 {
		n--
	}
	if n < authority.Fewest || known[0] != self {
		return nil
	}
	return known[:n]
}

func hostsOf(shares []wire.Share) (names []string) {
	for _, s := range shares {
		names = append(names, s.Host)
	}
	return names
}

// addressesOf returns the addresses of a cluster's members by their names.
func addressesOf(members []wire.MemberState) map[string]string {
	out := map[string]string{}
	for _, m := range members {
		out[m.Host] = m.Addr
	}
	return out
}

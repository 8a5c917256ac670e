package topology

import (
	"context"
	"fmt"
	"strings"
)

// By is what an order of the ring goes by.
type By string

// What there is to go by. The empty By is Measured.
const (
	ByHost     By = "host"     // the order of the host list
	ByTopology By = "topology" // labels and what NICs say of themselves
	ByMeasured By = "measured" // also what was measured, where something was
)

// ParseBy checks a By that a user gave.
func ParseBy(text string) (By, error) {
	switch by := By(text); by {
	case "":
		return ByMeasured, nil
	case ByHost, ByTopology, ByMeasured:
		return by, nil
	}
	return "", fmt.Errorf("%q is not host, topology or measured", text)
}

// OrderBy is Order with what the user wants it to go by. The reasons tell all that is known of each edge, also what the
// order does not go by, and end with what it goes by instead of measurements. When ctx is over it returns soon, with
// any ring.
func OrderBy(ctx context.Context, by By, hosts []Host, edges []Edge) Ring {
	switch by {
	case ByTopology:
		return Keep(hosts, edges, order(ctx, hosts, nil).Order).because(labelOrder)
	case ByHost:
		if len(hosts) > 1 {
			order := make([]int, len(hosts))
			for i := range order {
				order[i] = i
			}
			return Keep(hosts, edges, order).because(hostOrder)
		}
	}
	return order(ctx, hosts, edges)
}

// Stay is Keep for what is left of a former ring, in which hosts that are gone are -1: the reasons of edges that it had, too,
// end with that.
func Stay(hosts []Host, edges []Edge, order, former []int) Ring {
	return Keep(hosts, edges, order).since(former)
}

// Keep returns the ring of a given order, with all that is known of each edge.
func Keep(hosts []Host, edges []Edge, order []int) Ring {
	if len(order) < 2 {
		return Ring{Order: order}
	}
	return Ring{Order: order, Why: newProblem(hosts, edges).why(hosts, order)}
}

// Reasons, or the ends of some: what the order goes by, and for an edge of a ring that was changed, that it is an old one.
const (
	hostOrder  = "order of the host list"
	labelOrder = "by labels and NICs"
	asBefore   = "as before"
)

// since adds to the reasons of edges that a former order had, too, that they are there as before. Hosts that are gone are -1
// in it: those that were around one did not follow each other. One host alone has no edge.
func (r Ring) since(former []int) Ring {
	next := map[int]int{}
	for i, host := range former {
		next[host] = former[(i+1)%len(former)]
	}
	for i := range r.Why {
		if to, there := next[r.Order[i]]; there && to == r.Order[(i+1)%len(r.Order)] {
			r.Why[i] += ", " + asBefore
		}
	}
	return r
}

// because adds to the reasons what they do not say already.
func (r Ring) because(reason string) Ring {
	for i, why := range r.Why {
		if !strings.HasSuffix(why, reason) {
			r.Why[i] = why + ", " + reason
		}
	}
	return r
}

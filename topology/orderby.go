package topology

import (
	"context"
	"fmt"
	"strings"
)

// By selects what the order of the ring is based on.
type By string

// The choices. The empty By is ByMeasured.
const (
	ByHost     By = "host"     // the order of the host list
	ByTopology By = "topology" // labels and the speeds that NICs report
	ByMeasured By = "measured" // measurements as well, where there are any
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

// OrderBy is Order by the user's choice. The reasons include everything known about each edge, even if the order
// ignores it, and end with the basis of the order if that is not measurements. When ctx is done, OrderBy returns soon
// with an arbitrary ring.
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

// Stay is Keep for the rest of a former ring, in which hosts that are gone are -1; the reasons of its remaining edges
// say so.
func Stay(hosts []Host, edges []Edge, order, former []int) Ring {
	return Keep(hosts, edges, order).since(former)
}

// Keep returns the ring of a given order, with everything known about each edge.
func Keep(hosts []Host, edges []Edge, order []int) Ring {
	if len(order) < 2 {
		return Ring{Order: order}
	}
	return Ring{Order: order, Why: newProblem(hosts, edges).why(hosts, order)}
}

// Reasons, or endings of reasons: the basis of the order, and for an edge of a changed ring, that it is an old one.
const (
	hostOrder  = "order of the host list"
	labelOrder = "by labels and NICs"
	asBefore   = "as before"
)

// since marks the edges that were part of a former order. Hosts that are gone are -1 in it: their neighbours were not
// connected. A single host has no edge.
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

// because appends a reason wherever it is missing.
func (r Ring) because(reason string) Ring {
	for i, why := range r.Why {
		if !strings.HasSuffix(why, reason) {
			r.Why[i] = why + ", " + reason
		}
	}
	return r
}

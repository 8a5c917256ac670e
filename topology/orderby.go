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
			return Keep(hosts, edges, listed(len(hosts))).because(hostOrder)
		}
	}
	return order(ctx, hosts, edges)
}

// Keep returns the ring of a given order, with everything known about each edge.
func Keep(hosts []Host, edges []Edge, order []int) Ring {
	if len(order) < 2 {
		return Ring{Order: order}
	}
	return Ring{Order: order, Why: newProblem(hosts, edges).why(hosts, order)}
}

// Endings of reasons: the basis of the order.
const (
	hostOrder  = "order of the host list"
	labelOrder = "by labels and NICs"
)

// because appends a reason wherever it is missing.
func (r Ring) because(reason string) Ring {
	for i, why := range r.Why {
		if !strings.HasSuffix(why, reason) {
			r.Why[i] = why + ", " + reason
		}
	}
	return r
}

// worthwhile is how many times faster the slowest edge of another ring must be to justify a change within a job, which
// pauses the job for a moment.
const worthwhile = 1.25

// Pays reports whether it pays for hosts to change from one ring to another by labels and NICs, and why: the slowest edge
// is a quarter faster, or as fast with fewer crossings.
func Pays(hosts []Host, now, then []int) (why string, pays bool) {
	p := newProblem(hosts, nil)
	before, after := p.slowest(now), p.slowest(then)
	fewer := int(p.crossings(now) - p.crossings(then))
	var reasons []string
	if after >= worthwhile*before {
		reasons = append(reasons, fmt.Sprintf("its slowest edge carries %s instead of %s", BitRate(after), BitRate(before)))
	}
	if fewer > 0 {
		reasons = append(reasons, fmt.Sprintf("it crosses %d borders less", fewer))
	}
	return strings.Join(reasons, ", "), len(reasons) > 0 && after >= (1-tolerance)*before
}

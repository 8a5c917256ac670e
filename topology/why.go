package topology

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// why explains every edge of the ring in a few words.
func (p *problem) why(hosts []Host, order []int) []string {
	bottleneck := p.bottleneck(order)
	why := make([]string, len(order))
	for i, from := range order {
		to := order[(i+1)%len(order)]
		at := from*p.n + to
		reasons := append(relation(hosts[from], hosts[to]), p.nets.why(hosts, from, to)...)
		switch p.known[at] {
		case unknown:
		case blocked:
			reasons = append(reasons, "could not be measured")
		default:
			reasons = append(reasons, BitRate(p.edges[at].speed)+" "+sources[p.known[at]].text)
		}
		if p.rtt[at] > 0 {
			reasons = append(reasons, roundTrip(p.rtt[at]))
		}
		if p.edges[at].speed == bottleneck {
			reasons = append(reasons, "the bottleneck")
		}
		if len(reasons) == 0 {
			reasons = []string{"nothing known, " + hostOrder}
		}
		why[i] = strings.Join(reasons, ", ")
	}
	return why
}

// noise is the part by which measured bandwidths of equal edges differ.
const noise = 0.25

// bottleneck returns the speed of a ring's slowest edge, 0 if that is not slower than the fastest one by more than noise.
func (p *problem) bottleneck(order []int) float64 {
	slowest, fastest := math.Inf(1), 0.0
	for i, from := range order {
		at := from*p.n + order[(i+1)%len(order)]
		if p.known[at] != blocked { // the speed of a blocked edge is unknown
			slowest, fastest = min(slowest, p.edges[at].speed), max(fastest, p.edges[at].speed)
		}
	}
	if slowest < (1-noise)*fastest {
		return slowest
	}
	return 0
}

// relation describes what two hosts share, or what separates them.
func relation(from, to Host) []string {
	for _, label := range crossingLabels { // from the nearest to the farthest
		if a := from.Labels[label]; a != "" && a == to.Labels[label] {
			return []string{"same " + label + " " + a + SourceNote(label, from, to)}
		}
	}
	for i := len(crossingLabels) - 1; i >= 0; i-- {
		label := crossingLabels[i]
		if a, b := from.Labels[label], to.Labels[label]; a != b {
			return []string{fmt.Sprintf("from %s %s to %s", label, cmp.Or(a, "unknown"), cmp.Or(b, "unknown"))}
		}
	}
	return nil
}

// SourceNote returns, in parentheses, the sources of a label of these hosts and how reliable they are; "" if unknown.
func SourceNote(label string, hosts ...Host) string {
	by := labelSources(label, hosts)
	if len(by) == 0 {
		return ""
	}
	return fmt.Sprintf(" (from %s, %.0f %%)", strings.Join(by, " and "), 100*byLabel)
}

// labelSources returns the sources of a label of hosts, each once.
func labelSources(label string, hosts []Host) (by []string) {
	for _, h := range hosts {
		if source := h.LabelSources[label]; source != "" && !slices.Contains(by, source) {
			by = append(by, source)
		}
	}
	return by
}

// BitRate renders bytes per second in the units of networks.
func BitRate(bytes float64) string {
	bits, unit := bytes*8/1e6, "Mbit/s"
	if bits >= 1000 {
		bits, unit = bits/1000, "Gbit/s"
	}
	return Short(bits) + " " + unit
}

func roundTrip(seconds float64) string {
	if seconds < 1e-3 {
		return Short(seconds*1e6) + " µs"
	}
	return Short(seconds*1e3) + " ms"
}

// Short renders x with at most one digit after the point, and that only below 100.
func Short(x float64) string {
	if x >= 100 {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strings.TrimSuffix(strconv.FormatFloat(x, 'f', 1, 64), ".0")
}

// Line renders the ring in one line, with the names of the hosts.
func (r Ring) Line(hosts []Host) string {
	var b strings.Builder
	b.WriteString("ring:")
	for _, i := range r.Order {
		b.WriteString(" " + hostName(hosts, i) + " →")
	}
	if len(r.Order) == 0 {
		return "ring: no hosts"
	}
	return b.String() + " (" + hostName(hosts, r.Order[0]) + ")"
}

func hostName(hosts []Host, i int) string {
	switch {
	case i < 0 || i >= len(hosts):
		return fmt.Sprintf("host %d", i)
	case hosts[i].Name != "":
		return hosts[i].Name
	case hosts[i].Hostname != "":
		return hosts[i].Hostname
	}
	return fmt.Sprintf("host %d", i)
}

package topology

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Site is a set of hosts that are, or seem to be, on one machine.
type Site struct {
	Hosts      []string // names, in the order of the host list
	Labelled   bool     // by the label esxi, not by measurements
	By         []string // the sources of the label, if known: "vCenter"
	Confidence float64
	Why        string
}

func (s Site) String() string {
	sure := "are"
	if !s.Labelled {
		sure = fmt.Sprintf("are, by %.0f %%,", 100*s.Confidence)
	}
	return fmt.Sprintf("%s %s on one ESXi host: %s", strings.Join(s.Hosts, ", "), sure, s.Why)
}

// A round trip between two VMs of one machine takes a fraction of one through a network card and a switch.
const (
	apart = 2.0 // how many times longer a round trip between machines must be
	// Confidence in labels, in round-trip times alone, and in times and bandwidths that agree. The second is little
	// more than a guess: hosts on one switch are near each other, too.
	byLabel, byTime, byBoth = 1.0, 0.6, 0.9
	faster                  = 1.3 // how many times faster memory must be than the network
)

// Together returns which hosts share a machine: by label and, without labels, groups of VMs that are all nearer to each
// other than to any other host, with nothing in between. Two hosts, or hosts that are all alike, offer no comparison
// and give no result.
func Together(hosts []Host, edges []Edge) []Site {
	var sites []Site
	labelled := map[string][]Host{}
	at := map[string]int{}
	var unlabelled []int
	for i, h := range hosts {
		esxi := h.Labels["esxi"]
		if esxi == "" {
			unlabelled = append(unlabelled, i)
			continue
		}
		if labelled[esxi] == nil {
			at[esxi] = len(sites)
			sites = append(sites, Site{Labelled: true, Confidence: byLabel})
		}
		labelled[esxi] = append(labelled[esxi], h)
		s := &sites[at[esxi]]
		s.Hosts, s.By = append(s.Hosts, hostName(hosts, i)), labelSources("esxi", labelled[esxi])
		s.Why = strings.Join(append([]string{"its label is " + esxi}, s.By...), ", by ")
	}
	sites = slices.DeleteFunc(sites, func(s Site) bool { return len(s.Hosts) < 2 })
	if len(unlabelled) < 3 {
		return sites
	}
	return append(sites, nearGroups(hosts, unlabelled, newProblem(hosts, edges))...)
}

// nearGroups finds the widest gap between round-trip times and takes times below it as within a machine, if the
// resulting groups do not overlap.
func nearGroups(hosts []Host, among []int, p *problem) []Site {
	var times []float64
	for _, i := range among {
		for _, j := range among {
			if t := p.rtt[i*p.n+j]; i != j && t > 0 {
				times = append(times, t)
			} else if i != j {
				return nil // some are unknown
			}
		}
	}
	slices.Sort(times)
	near, far := 0.0, 0.0
	for i := 1; i < len(times); i++ {
		if near == 0 || times[i]/times[i-1] > far/near {
			near, far = times[i-1], times[i]
		}
	}
	if len(times) == 0 || near == 0 || far < apart*near {
		return nil
	}
	var sites []Site
	done := map[int]bool{}
	for _, i := range among {
		group := slices.DeleteFunc(slices.Clone(among), func(j int) bool { return i != j && p.rtt[i*p.n+j] > near })
		if done[i] || len(group) < 2 || !slices.ContainsFunc(among, func(j int) bool { return !slices.Contains(group, j) }) {
			continue
		}
		closed, inside, across := true, 0.0, 0.0
		var names []string
		for _, a := range group {
			done[a] = true
			names = append(names, hostName(hosts, a))
			closed = closed && isVM(hosts[a])
			for _, b := range among {
				at := a*p.n + b
				isIn := slices.Contains(group, b)
				closed = closed && (a == b || isIn == (p.rtt[at] <= near)) && !(isIn && apartBy(hosts[a], hosts[b]))
				if a == b || !p.known[at].fact() {
					continue
				}
				if isIn {
					inside = cmp.Or(min(inside, p.edges[at].speed), p.edges[at].speed)
				} else {
					across = max(across, p.edges[at].speed)
				}
			}
		}
		if !closed {
			continue
		}
		site := Site{Hosts: names, Confidence: byTime, Why: fmt.Sprintf("a round trip takes at most %s between them, at least %s to others", roundTrip(near), roundTrip(far))}
		if across > 0 && inside >= faster*across {
			site.Confidence = byBoth
			site.Why += fmt.Sprintf(", and they reach %s, others %s", BitRate(inside), BitRate(across))
		}
		sites = append(sites, site)
	}
	return sites
}

// apartBy reports whether two machines cannot be on one host because of what they report: a host has one version, and
// one set of processors and memory. Equal values prove nothing, because hosts are bought by the dozen; neither do
// session ids, which are random for each machine.
func apartBy(a, b Host) bool {
	return slices.ContainsFunc(hypervisorLabels, func(label string) bool {
		x, y := a.Labels[label], b.Labels[label]
		return x != "" && y != "" && x != y
	})
}

// hypervisorLabels are package probe's names for the hypervisor's version and build, and for its hardware.
var hypervisorLabels = []string{"esxi-release", "esxi-hardware"}

// isVM reports whether a machine may share its hardware with another.
func isVM(h Host) bool { return h.Platform != "" && h.Platform != "baremetal" }

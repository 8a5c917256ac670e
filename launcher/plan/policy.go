package plan

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"gorun/launcher/hosts"
)

// Policy is how ranks are dealt to hosts, in mpirun's terms. The zero Policy fills host by host.
type Policy struct {
	MapByNode     bool   // one rank to each host in turn, instead of filling the first host
	RankByNode    bool   // number ranks across the hosts, instead of host by host
	RankWithin    string // the part of a host by which to number ranks: numa, …; "" for none. It is not supported
	PerHost       int    // ranks on each host, whatever its slots; 0 for its slots
	Oversubscribe bool   // allow more ranks than slots
	Cores         int    // for each rank, 0 if not given
	Within        string // the part of a host that ranks are dealt to: core, numa, …; "" for none
}

// ErrRankBy is the cause of errors of ParsePolicy that concern --rank-by. Other errors concern --map-by.
var ErrRankBy = errors.New("neither slot nor node, nor of what is within a host (core, hwthread, numa, socket)")

// ParsePolicy reads mpirun's --map-by and --rank-by. Mapping within a host (core, numa, socket, …) fills host by host,
// because the binding decides where in its host a rank runs. "" is the default.
func ParsePolicy(mapBy, rankBy string) (Policy, error) {
	var p Policy
	spec, modifiers, _ := strings.Cut(mapBy, ":")
	if rest, ok := strings.CutPrefix(mapBy, "ppr:"); ok {
		n, unit, _ := strings.Cut(rest, ":")
		unit, modifiers, _ = strings.Cut(unit, ":")
		count, err := strconv.Atoi(n)
		if err != nil || count < 1 || count > hosts.MaxSlots || unit != "node" && unit != "host" {
			return p, fmt.Errorf("map by %q: not of the form ppr:N:node, with N up to %d", mapBy, hosts.MaxSlots)
		}
		spec, p.PerHost = "ppr", count
	}
	switch spec {
	case "", "slot", "ppr":
	case "core", "hwthread", "numa", "socket", "package", "l1cache", "l2cache", "l3cache":
		p.Within = spec
	case "node", "host":
		p.MapByNode = true
	default:
		return p, fmt.Errorf("map by %q: none of slot, node, ppr:N:node, nor of what is within a host (core, hwthread, numa, socket, l3cache)", mapBy)
	}
	for m := range strings.SplitSeq(strings.ReplaceAll(modifiers, ":", ","), ",") { // Open MPI accepts both
		switch strings.ToUpper(m) {
		case "", "NOOVERSUBSCRIBE", "SPAN":
		case "OVERSUBSCRIBE":
			p.Oversubscribe = true
		default:
			n, isCores := strings.CutPrefix(strings.ToUpper(m), "PE=")
			cores, err := strconv.Atoi(n)
			if !isCores || err != nil || cores < 1 || cores > hosts.MaxSlots {
				return p, fmt.Errorf("map by %q: unknown modifier %q", mapBy, m)
			}
			p.Cores = cores
		}
	}
	switch rankBy {
	case "":
		p.RankByNode = p.MapByNode
	case "slot", "fill", "core", "hwthread":
	case "numa", "socket", "package", "l1cache", "l2cache", "l3cache":
		p.RankWithin = rankBy
	case "node", "host", "span":
		p.RankByNode = true
	default:
		return p, fmt.Errorf("rank by %q: %w", rankBy, ErrRankBy)
	}
	return p, nil
}

// counts returns how many of np ranks each host gets. There are slots for all of them.
func (by Policy) counts(list []hosts.ListedHost, np int) []int {
	counts := make([]int, len(list))
	for left := np; left > 0; {
		for i, h := range list {
			n := min(h.Slots-counts[i], left)
			if by.MapByNode {
				n = min(n, 1)
			}
			counts[i] += n
			left -= n
		}
	}
	return counts
}

// number assigns numbers to the ranks of every host.
func (by Policy) number(list []hosts.ListedHost, counts []int) (p Placement) {
	at := map[string]int{}
	for added := true; added; {
		added = false
		for i, h := range list {
			for counts[i] > 0 {
				p.add(h.Name, at)
				counts[i]--
				if added = true; by.RankByNode {
					break
				}
			}
		}
	}
	return p
}

package plan

import (
	"errors"
	"fmt"
	"strings"

	"gorun/launcher/hosts"
)

// Part is one of several programs of a job, with hosts of its own.
type Part struct {
	Ranks int
	Hosts []hosts.ListedHost
}

// PlaceParts places one program after the other by a policy. The slots in a host's list are shared by all programs; a
// number of ranks per host, regardless of slots, applies to each program.
func PlaceParts(parts []Part, by Policy) (Placement, error) {
	var all Placement
	at := map[string]int{} // index of a host in all.Hosts, by name
	for i, part := range parts {
		var left []hosts.ListedHost
		taken := 0
		for _, h := range part.Hosts {
			if j, known := at[h.Name]; known && h.Slots > 0 && by.PerHost == 0 {
				taken += min(h.Slots, len(all.Hosts[j].Ranks))
				h.Slots -= len(all.Hosts[j].Ranks)
				if by.Oversubscribe {
					h.Slots = max(h.Slots, 1)
				}
				if h.Slots < 1 {
					continue
				}
			}
			left = append(left, h)
		}
		if len(left) == 0 {
			return Placement{}, fmt.Errorf("place program %d: those before it have all slots of %s", i+1, namesOf(part.Hosts))
		}
		p, err := Place(left, part.Ranks, by)
		if few, ok := errors.AsType[*SlotsError](err); ok {
			few.Program = i + 1
			if taken > 0 {
				few.Hosts, few.Taken = part.Hosts, taken // as the user wrote them
			}
			return Placement{}, few
		}
		if err != nil {
			return Placement{}, fmt.Errorf("program %d: %w", i+1, err)
		}
		for _, r := range p.Ranks {
			all.add(p.Hosts[r.Host].Name, at)
		}
	}
	all.cross()
	return all, nil
}

// add puts the next rank on a host.
func (p *Placement) add(host string, at map[string]int) {
	i, known := at[host]
	if !known {
		i = len(p.Hosts)
		at[host] = i
		p.Hosts = append(p.Hosts, PlacedHost{Name: host})
	}
	h := &p.Hosts[i]
	rank := len(p.Ranks)
	p.Ranks = append(p.Ranks, PlacedRank{Rank: rank, LocalRank: len(h.Ranks), Host: i})
	h.Ranks = append(h.Ranks, rank)
}

func namesOf(list []hosts.ListedHost) string {
	var names []string
	for _, h := range list {
		names = append(names, h.Name)
	}
	return strings.Join(names, ", ")
}

package plan_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"gorun/contrib/must"
	"gorun/launcher/hosts"
	"gorun/launcher/plan"
)

func TestPlaceByPolicy(t *testing.T) {
	for _, tt := range []struct {
		hosts         string
		np            int
		mapBy, rankBy string
		want          string // ranks of each host
	}{
		{"a:2,b:2", 4, "slot", "", "a[0 1] b[2 3]"},
		{"a:2,b:2", 3, "", "", "a[0 1] b[2]"},
		{"a:2,b:2", 2, "", "", "a[0 1]"},
		{"a:2,b:3", 0, "", "", "a[0 1] b[2 3 4]"},
		{"a,b", 5, "", "", "a[0 1 2] b[3 4]"},
		{"a,b", 0, "", "", "a[0] b[1]"},
		{"a:2,b", 3, "", "", "a[0 1] b[2]"},
		{"a:2,b:2", 4, "node", "", "a[0 2] b[1 3]"},
		{"a:2,b:2", 4, "node", "slot", "a[0 1] b[2 3]"},
		{"a:2,b:2", 4, "slot", "node", "a[0 2] b[1 3]"},
		{"a:2,b:2", 4, "node", "numa", "a[0 1] b[2 3]"},
		{"a:3,b:1,c:2", 5, "node", "", "a[0 3] b[1] c[2 4]"},
		{"a:3,b:1", 4, "node", "", "a[0 2 3] b[1]"},
		{"a:4,b:4", 2, "node", "", "a[0] b[1]"},
		{"a:4,b:4", 0, "ppr:2:node", "", "a[0 1] b[2 3]"},
		{"a,b", 4, "ppr:2:node", "node", "a[0 2] b[1 3]"},
		{"a:8,b:8", 3, "ppr:2:node", "", "a[0 1] b[2]"},
		{"a:1,b:1", 4, "slot:OVERSUBSCRIBE", "", "a[0 1] b[2 3]"},
		{"a:1,b:1", 4, "slot:PE=1:OVERSUBSCRIBE", "", "a[0 1] b[2 3]"},
		{"a:1,b:1", 4, "ppr:2:node:NOOVERSUBSCRIBE:OVERSUBSCRIBE", "", "a[0 1] b[2 3]"},
		{"a:2,b:1", 4, "node:oversubscribe", "", "a[0 2 3] b[1]"},
		{"a:2,b:2", 3, "core", "", "a[0 1] b[2]"},
	} {
		list, err := hosts.ParseList(tt.hosts)
		must.Do(t, err)
		policy, err := plan.ParsePolicy(tt.mapBy, tt.rankBy)
		if err != nil {
			t.Errorf("%s %s: %v", tt.mapBy, tt.rankBy, err)
			continue
		}
		p, err := plan.Place(list, tt.np, policy)
		var got []string
		for i, h := range p.Hosts {
			got = append(got, fmt.Sprint(h.Name, h.Ranks))
			for local, rank := range h.Ranks {
				if r := p.Ranks[rank]; r.Rank != rank || r.LocalRank != local || r.Host != i {
					t.Errorf("%+v: rank %d is %+v", tt, rank, r)
				}
			}
		}
		if err != nil || !reflect.DeepEqual(strings.Join(got, " "), tt.want) {
			t.Errorf("%+v: got %s, %v", tt, strings.Join(got, " "), err)
		}
	}
}

func TestPolicyErrors(t *testing.T) {
	for spec, want := range map[string]string{
		"spread":          "none of slot, node",
		"ppr:0:node":      "not of the form ppr:N:node",
		"ppr:2:socket":    "not of the form ppr:N:node",
		"ppr:x":           "not of the form ppr:N:node",
		"slot:PE=0":       `unknown modifier "PE=0"`,
		"ppr:2:node:nope": `unknown modifier "nope"`,
	} {
		if _, err := plan.ParsePolicy(spec, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", spec, err, want)
		}
	}
	if _, err := plan.ParsePolicy("", "colour"); err == nil {
		t.Error("rank by colour is no policy")
	}
}

// FuzzPolicy: whatever is asked for, every rank is placed once, within the slots.
func FuzzPolicy(f *testing.F) {
	f.Add("node", "slot", 7, 3, 2, 4)
	f.Add("ppr:2:node:OVERSUBSCRIBE", "node", 9, 1, 1, 1)
	f.Fuzz(func(t *testing.T, mapBy, rankBy string, np, a, b, c int) {
		policy, err := plan.ParsePolicy(mapBy, rankBy)
		if err != nil || np < 0 || np > 500 || policy.PerHost > 100 {
			return
		}
		var list []hosts.ListedHost
		for i, slots := range []int{a, b, c} {
			list = append(list, hosts.ListedHost{Name: fmt.Sprint(i), Slots: max(0, min(slots, 100))})
		}
		p, err := plan.Place(list, np, policy)
		if err != nil {
			return
		}
		seen := map[int]bool{}
		for _, h := range p.Hosts {
			if len(h.Ranks) == 0 {
				t.Fatal("a host without ranks")
			}
			for _, r := range h.Ranks {
				seen[r] = true
			}
		}
		if len(seen) != len(p.Ranks) || np > 0 && len(p.Ranks) != np {
			t.Fatalf("%d ranks for -np %d, %d on hosts", len(p.Ranks), np, len(seen))
		}
	})
}

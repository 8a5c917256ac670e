package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"gorun/launcher/hosts"
	"gorun/launcher/plan"
)

// TestPlaceParts: programs with hosts of their own. Ranks are numbered program by program, local ranks within a host
// whatever runs there, and slots that are given are for all programs.
func TestPlaceParts(t *testing.T) {
	for _, tt := range []struct {
		parts string // ranks and hosts of each program
		by    plan.Policy
		want  string // ranks of each host, or the error
	}{
		{"1 a, 4 b", plan.Policy{}, "a[0] b[1 2 3 4]"},
		{"1 a:4, 3 a:4", plan.Policy{}, "a[0 1 2 3]"},
		{"1 a, 2 a", plan.Policy{}, "a[0 1 2]"},
		{"2 a:2, 2 a:2 b:2", plan.Policy{}, "a[0 1] b[2 3]"},
		{"1 b:2, 3 a:2 b:2", plan.Policy{}, "b[0 3] a[1 2]"},
		{"1 a:2, 2 a:2 b:1", plan.Policy{MapByNode: true, RankByNode: true}, "a[0 1] b[2]"},
		{"2 a:2, 1 a:2", plan.Policy{}, "place program 2: those before it have all slots of a"},
		{"2 a:2, 2 a:2", plan.Policy{Oversubscribe: true}, "a[0 1 2 3]"},
		{"1 a:2, 2 a:2", plan.Policy{}, "program 2: place ranks: -np 2 needs 2 slots, but a:2 has 2, of which programs before it take 1"},
		{"1 a:1, 4 a:4", plan.Policy{}, "program 2: place ranks: -np 4 needs 4 slots, but a:4 has 4, of which programs before it take 1"},
		{"2 a:2, 1 b, 4 a:2 b:2 c", plan.Policy{}, "program 3: place ranks: -np 4 needs 4 slots, but a:2,b:2,c:1 has 5, of which programs before it take 3"},
		{"1 a:2, 3 b:2", plan.Policy{}, "program 2: place ranks: -np 3 needs 3 slots, but b:2 has 2"},
		{"2 a:2, 2 a:2", plan.Policy{PerHost: 2}, "a[0 1 2 3]"},
	} {
		var parts []plan.Part
		for text := range strings.SplitSeq(tt.parts, ", ") {
			n, list, _ := strings.Cut(text, " ")
			part := plan.Part{Ranks: int(n[0] - '0')}
			var err error
			if part.Hosts, err = hosts.ParseList(strings.ReplaceAll(list, " ", ",")); err != nil {
				t.Fatal(err)
			}
			parts = append(parts, part)
		}
		p, err := plan.PlaceParts(parts, tt.by)
		var got []string
		for i, h := range p.Hosts {
			got = append(got, fmt.Sprint(h.Name, h.Ranks))
			for local, rank := range h.Ranks {
				if r := p.Ranks[rank]; r.Rank != rank || r.LocalRank != local || r.Host != i || r.CrossSize < 1 {
					t.Errorf("%s: rank %d is %+v", tt.parts, rank, r)
				}
			}
		}
		if err != nil {
			got = []string{err.Error()}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: got %s, want %s", tt.parts, strings.Join(got, " "), tt.want)
		}
	}
}

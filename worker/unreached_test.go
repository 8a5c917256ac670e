package worker

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestUnreached: a peer that is missed while a world is formed is worth a line after some seconds and is taken for lost after the
// lease; one that comes is heard of again if it was. Each second is the peers that are missed in it.
func TestUnreached(t *testing.T) {
	repeat := func(n int, missed string) []string { return slices.Repeat([]string{missed}, n) }
	for name, tc := range map[string]struct {
		lease  time.Duration
		missed []string
		stood  int // the second at which this host finds that it stood still
		begins int // the one at which another world is formed
		want   string
	}{
		"nobody is missed":             {10 * time.Second, repeat(20, ""), 0, 0, ""},
		"one is missed":                {10 * time.Second, repeat(20, "3"), 0, 0, "late 3@4 lost 3@10"},
		"the lease is short":           {time.Second, repeat(20, "3"), 0, 0, "late 3@4 lost 3@6"},
		"it comes before it is late":   {10 * time.Second, append(repeat(3, "3"), repeat(20, "")...), 0, 0, ""},
		"it comes late":                {10 * time.Second, append(repeat(9, "3"), repeat(20, "")...), 0, 0, "late 3@4"},
		"it comes when it is lost":     {10 * time.Second, append(repeat(12, "3"), repeat(20, "")...), 0, 0, "late 3@4 lost 3@10 back 3@12"},
		"it comes and goes":            {10 * time.Second, append(append(repeat(9, "3"), ""), repeat(12, "3")...), 0, 0, "late 3@4 late 3@14 lost 3@20"},
		"one after the other":          {10 * time.Second, append(repeat(3, "3"), repeat(12, "2 3")...), 0, 0, "late 3@4 late 2@7 lost 3@10 lost 2@13"},
		"another world is formed":      {10 * time.Second, repeat(18, "3"), 0, 5, "late 3@4 late 3@9 lost 3@15"},
		"another one when it is lost":  {10 * time.Second, repeat(24, "3"), 0, 12, "late 3@4 lost 3@10 anew 3@12 late 3@16 lost 3@22"},
		"another one in which it came": {10 * time.Second, append(repeat(12, "3"), repeat(9, "")...), 0, 12, "late 3@4 lost 3@10 anew 3@12"},
		"this host stood still itself": {10 * time.Second, repeat(18, "3"), 7, 0, "late 3@4 lost 3@17"},
	} {
		u := newUnreached()
		var got []string
		for s, missed := range tc.missed {
			now := time.Unix(1000, 0).Add(time.Duration(s) * time.Second)
			if s > 0 && s == tc.stood {
				u.stood(now)
			}
			if s > 0 && s == tc.begins {
				for _, id := range u.begin() {
					got = append(got, fmt.Sprintf("anew %d@%d", id, s))
				}
			}
			var peers []int
			for _, f := range strings.Fields(missed) {
				peer, err := strconv.Atoi(f)
				if err != nil {
					t.Fatal(err)
				}
				peers = append(peers, peer)
			}
			late, lost, back := u.look(now, tc.lease, peers)
			for what, ids := range map[string][]int{"late": late, "lost": lost, "back": back} {
				for _, id := range ids {
					got = append(got, fmt.Sprintf("%s %d@%d", what, id, s))
				}
			}
		}
		if got := strings.Join(got, " "); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

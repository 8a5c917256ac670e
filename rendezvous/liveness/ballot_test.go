package liveness

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestBallot: which hosts are lost when some do not hear others any more. A report is "by>of@second",
// "by?of@second" warns of it, and "by<of@second" withdraws either. The members are hosts 0 to 3.
func TestBallot(t *testing.T) {
	for name, tc := range map[string]struct {
		said  []string
		deaf  []int  // hosts that the launcher does not hear
		lost  string // and when
		fresh []int  // who has not been in a world
	}{
		"a host without power":                   {[]string{"0>3@0"}, []int{3}, "3@0", nil},
		"the one that is cut off speaks first":   {[]string{"0>1@0", "0>2@0", "0>3@1", "2>0@2", "1>0@2", "3>0@3"}, nil, "0@3", nil},
		"the others speak first":                 {[]string{"1>0@0", "2>0@0", "3>0@0", "0>3@1"}, nil, "0@0", nil},
		"the others say nothing":                 {[]string{"0>1@0", "0>2@1"}, nil, "0@5", nil},
		"one does not hear one":                  {[]string{"1>2@0"}, nil, "2@5", nil},
		"neither hears the other":                {[]string{"2>1@0", "1>2@4"}, nil, "2@5", nil},
		"one will not hear one":                  {[]string{"1?2@0", "1>2@5"}, nil, "2@5", nil},
		"it hears it in time":                    {[]string{"1?2@0", "1<2@4"}, nil, "", nil},
		"it is foretold for ever":                {[]string{"1?2@0", "0?2@0", "3?2@0"}, []int{2}, "", nil},
		"it is foretold late":                    {[]string{"1?2@0", "1>2@2"}, nil, "2@5", nil},
		"the one that is cut off is first":       {[]string{"0?1@0", "0?2@0", "0?3@0", "2?0@1", "1?0@2", "0>1@5", "0>2@5", "0>3@5", "2>0@6", "1>0@7"}, nil, "0@5", nil},
		"others may be, but not for long":        {[]string{"1?2@0", "0?3@4", "1>2@5", "0<3@6"}, nil, "2@5", nil},
		"two parts":                              {[]string{"3>1@0", "2>0@0", "3>0@0", "2>1@1", "0>2@1", "1>2@1", "0>3@2", "1>3@3"}, nil, "3@5 2@5", nil},
		"it is heard again":                      {[]string{"1>2@0", "1<2@3"}, nil, "", nil},
		"it is heard again, and then not":        {[]string{"1>2@0", "1<2@3", "1>2@4"}, nil, "2@9", nil},
		"two without power":                      {[]string{"0>3@0", "0>2@1"}, []int{2, 3}, "3@0 2@1", nil},
		"who does not hear itself is not judged": {[]string{"1>1@0"}, nil, "", nil},
		"nor are strangers":                      {[]string{"1>9@0", "9>1@0"}, []int{9}, "", nil},
		"a joiner that two do not hear":          {[]string{"0>3@0", "1>3@0", "3>0@0", "3>1@0"}, nil, "3@0", []int{3}},
		"a joiner that one does not hear":        {[]string{"2>1@0", "1>2@0"}, nil, "1@5", []int{1}},
		"a joiner speaks first":                  {[]string{"0>3@0", "0>2@0", "0>1@0", "3>0@2"}, nil, "0@0", []int{0}},
		"joiners are more":                       {[]string{"1>0@0", "2>0@0", "3>0@0"}, nil, "1@0 2@0 3@0", []int{1, 2, 3}},
		"joiners are more than two":              {[]string{"2>0@0", "3>0@0", "2>1@1", "3>1@2"}, nil, "2@1 3@2", []int{2, 3}},
		"a joiner accuses one that is silent":    {[]string{"3>0@0"}, []int{0}, "", []int{3}},
		"others accuse one that is silent":       {[]string{"3>0@0", "1>0@2"}, []int{0}, "0@2", []int{3}},
		"a joiner without power":                 {[]string{"1>3@0"}, []int{3}, "3@0", []int{3}},
		"joiners do not hear each other":         {[]string{"2>3@0"}, nil, "3@5", []int{2, 3}},
		"one is cut off from a joiner too":       {[]string{"0>1@0", "0>2@0", "0>3@0", "1>0@1", "2>0@1", "3>0@1"}, nil, "0@1", []int{3}},
		"one of two is, which have a joiner":     {[]string{"0>1@0", "0>3@0", "1>0@1", "3>0@1"}, nil, "0@5", []int{2, 3}},
		"all are joiners":                        {[]string{"0>1@0", "0>2@0", "3>0@1", "2>0@2", "1>0@2", "3>0@3"}, nil, "0@2", []int{0, 1, 2, 3}},
	} {
		b := ballot{grace: Default().EvidenceGrace}
		start := time.Unix(1000, 0)
		left := []int{0, 1, 2, 3}
		got := ""
		for s := range 20 {
			now := start.Add(time.Duration(s) * time.Second)
			for _, said := range tc.said {
				var by, of, at int
				var what rune
				if _, err := fmt.Sscanf(said, "%d%c%d@%d", &by, &what, &of, &at); err != nil {
					t.Fatal(said, err)
				}
				switch {
				case at != s:
				case what == '>':
					b.suspect(now, by, of)
				case what == '?':
					b.warn(now, by, of)
				default:
					b.withdraw(by, of)
				}
			}
			for _, lost := range b.lost(now, left, func(id int) bool { return !slices.Contains(tc.deaf, id) }, func(id int) bool { return slices.Contains(tc.fresh, id) }) {
				got += fmt.Sprintf(" %d@%d", lost, s)
				left = slices.DeleteFunc(left, func(id int) bool { return id == lost })
			}
		}
		if got = got[min(1, len(got)):]; got != tc.lost {
			t.Errorf("%s: lost are %q, want %q", name, got, tc.lost)
		}
	}
}

// TestPartitions: however a network falls apart, and in whatever order hosts find out, one part is left, and of two
// parts the larger one; no host of it is lost.
func TestPartitions(t *testing.T) {
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := 2 + rng.IntN(9)
		parts := 2 + rng.IntN(2)
		part, size := make([]int, n), make([]int, parts)
		for id := range n {
			part[id] = rng.IntN(parts)
			size[part[id]]++
		}
		var reports []report
		for by := range n {
			for of := range n {
				if part[by] != part[of] {
					reports = append(reports, report{rng.IntN(19), by, of})
				}
			}
		}
		var left []int
		for id := range n {
			left = append(left, id)
		}
		left = judged(left, reports, func(int) bool { return false })
		kept := part[left[0]]
		if len(left) != size[kept] || slices.ContainsFunc(left, func(id int) bool { return part[id] != kept }) {
			t.Fatalf("seed %d: hosts are in parts %v, left are %v", seed, part, left)
		}
		if parts == 2 && size[kept] < size[1-kept] {
			t.Fatalf("seed %d: hosts are in parts %v, left are %v, the fewer", seed, part, left)
		}
	}
}

// report is a suspicion, at some step of a quarter of a second.
type report struct{ at, by, of int }

// judged returns which hosts are left of those, all of which the launcher hears, after those reports.
func judged(hosts []int, reports []report, joiner func(id int) bool) []int {
	slices.SortFunc(reports, func(a, b report) int { return a.at - b.at })
	b := ballot{grace: Default().EvidenceGrace}
	for step := range 60 {
		now := time.Unix(1000, 0).Add(time.Duration(step) * 250 * time.Millisecond)
		for len(reports) > 0 && reports[0].at == step {
			b.suspect(now, reports[0].by, reports[0].of)
			reports = reports[1:]
		}
		for _, lost := range b.lost(now, hosts, func(int) bool { return true }, joiner) {
			hosts = slices.DeleteFunc(hosts, func(id int) bool { return id == lost })
		}
	}
	return hosts
}

// TestJoinersCutOff: however joiners and the hosts of a world are parted, as long as the latter hear each other and the
// launcher them, they are who is left, with the joiners that hear all of them.
func TestJoinersCutOff(t *testing.T) {
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := 2 + rng.IntN(9)
		fresh := make([]bool, n)
		for id := range n {
			fresh[id] = rng.IntN(3) > 0
		}
		fresh[rng.IntN(n)] = false
		var reports []report
		parted := map[int]bool{} // joiners
		for id := range n {
			for other := range n {
				if fresh[id] && !fresh[other] && rng.IntN(3) == 0 {
					parted[id] = true
					who := rng.IntN(3) // reports it
					if who != 0 {
						reports = append(reports, report{rng.IntN(19), id, other})
					}
					if who != 1 {
						reports = append(reports, report{rng.IntN(19), other, id})
					}
				}
			}
		}
		var left, want []int
		for id := range n {
			left = append(left, id)
			if !parted[id] {
				want = append(want, id)
			}
		}
		left = judged(left, reports, func(id int) bool { return fresh[id] })
		if !slices.Equal(left, want) {
			t.Fatalf("seed %d: joiners are %v, parted %v, left are %v, want %v", seed, fresh, parted, left, want)
		}
	}
}

package elastic_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	e "gorun/launcher/elastic"
)

// TestAccusations: who is lost when some hosts do not hear others any more. An accusation is "by>of@second",
// "by?of@second" foretells it, and "by<of@second" takes either back. The members are hosts 0 to 3.
func TestAccusations(t *testing.T) {
	for name, tc := range map[string]struct {
		said  []string
		deaf  []int  // whom the launcher does not hear
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
		"a newcomer that two do not hear":        {[]string{"0>3@0", "1>3@0", "3>0@0", "3>1@0"}, nil, "3@0", []int{3}},
		"a newcomer that one does not hear":      {[]string{"2>1@0", "1>2@0"}, nil, "1@5", []int{1}},
		"a newcomer speaks first":                {[]string{"0>3@0", "0>2@0", "0>1@0", "3>0@2"}, nil, "0@0", []int{0}},
		"newcomers are more":                     {[]string{"1>0@0", "2>0@0", "3>0@0"}, nil, "1@0 2@0 3@0", []int{1, 2, 3}},
		"newcomers are more than two":            {[]string{"2>0@0", "3>0@0", "2>1@1", "3>1@2"}, nil, "2@1 3@2", []int{2, 3}},
		"a newcomer accuses one that is silent":  {[]string{"3>0@0"}, []int{0}, "", []int{3}},
		"others accuse one that is silent":       {[]string{"3>0@0", "1>0@2"}, []int{0}, "0@2", []int{3}},
		"a newcomer without power":               {[]string{"1>3@0"}, []int{3}, "3@0", []int{3}},
		"newcomers do not hear each other":       {[]string{"2>3@0"}, nil, "3@5", []int{2, 3}},
		"one is cut off from a newcomer too":     {[]string{"0>1@0", "0>2@0", "0>3@0", "1>0@1", "2>0@1", "3>0@1"}, nil, "0@1", []int{3}},
		"one of two is, which have a newcomer":   {[]string{"0>1@0", "0>3@0", "1>0@1", "3>0@1"}, nil, "0@5", []int{2, 3}},
		"all are newcomers":                      {[]string{"0>1@0", "0>2@0", "3>0@1", "2>0@2", "1>0@2", "3>0@3"}, nil, "0@2", []int{0, 1, 2, 3}},
	} {
		var a e.Accusations
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
					a.Accuse(now, by, of)
				case what == '?':
					a.Foretell(now, by, of)
				default:
					a.Withdraw(by, of)
				}
			}
			for _, lost := range a.Judge(now, left, func(id int) bool { return !slices.Contains(tc.deaf, id) }, func(id int) bool { return slices.Contains(tc.fresh, id) }) {
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
// parts the larger one; nobody of it is lost.
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
		var words []word
		for by := range n {
			for of := range n {
				if part[by] != part[of] {
					words = append(words, word{rng.IntN(19), by, of})
				}
			}
		}
		var left []int
		for id := range n {
			left = append(left, id)
		}
		left = judged(left, words, func(int) bool { return false })
		kept := part[left[0]]
		if len(left) != size[kept] || slices.ContainsFunc(left, func(id int) bool { return part[id] != kept }) {
			t.Fatalf("seed %d: hosts are in parts %v, left are %v", seed, part, left)
		}
		if parts == 2 && size[kept] < size[1-kept] {
			t.Fatalf("seed %d: hosts are in parts %v, left are %v, the fewer", seed, part, left)
		}
	}
}

// word is an accusation, at some step of a quarter of a second.
type word struct{ at, by, of int }

// judged is who is left of hosts, all of which the launcher hears, when those words have been said.
func judged(hosts []int, words []word, newcomer func(id int) bool) []int {
	slices.SortFunc(words, func(a, b word) int { return a.at - b.at })
	var a e.Accusations
	for step := range 60 {
		now := time.Unix(1000, 0).Add(time.Duration(step) * 250 * time.Millisecond)
		for len(words) > 0 && words[0].at == step {
			a.Accuse(now, words[0].by, words[0].of)
			words = words[1:]
		}
		for _, lost := range a.Judge(now, hosts, func(int) bool { return true }, newcomer) {
			hosts = slices.DeleteFunc(hosts, func(id int) bool { return id == lost })
		}
	}
	return hosts
}

// TestNewcomersCutOff: however newcomers and the hosts of a world are parted, as long as the latter hear each other and
// the launcher them, they are who is left, with the newcomers that hear all of them.
func TestNewcomersCutOff(t *testing.T) {
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		n := 2 + rng.IntN(9)
		fresh := make([]bool, n)
		for id := range n {
			fresh[id] = rng.IntN(3) > 0
		}
		fresh[rng.IntN(n)] = false
		var words []word
		parted := map[int]bool{} // newcomers
		for id := range n {
			for other := range n {
				if fresh[id] && !fresh[other] && rng.IntN(3) == 0 {
					parted[id] = true
					who := rng.IntN(3) // says so
					if who != 0 {
						words = append(words, word{rng.IntN(19), id, other})
					}
					if who != 1 {
						words = append(words, word{rng.IntN(19), other, id})
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
		left = judged(left, words, func(id int) bool { return fresh[id] })
		if !slices.Equal(left, want) {
			t.Fatalf("seed %d: newcomers are %v, parted %v, left are %v, want %v", seed, fresh, parted, left, want)
		}
	}
}

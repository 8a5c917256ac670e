package member

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"gorun/collective/link"
	"gorun/rendezvous/liveness"
	"gorun/rendezvous/wire"
)

// linkTimeout is how long the hosts of these tests try to reach each other.
var linkTimeout = liveness.Default().LinkTimeout

// wires stand in for the links of a host.
type wires struct {
	said   []string
	cut    map[int]bool // peers that do not answer
	keys   []error      // what the next attempts end with at once
	before func(n int)  // called before each attempt, with how many there were
}

func (f *wires) Open(peers []int) error {
	f.said = append(f.said, fmt.Sprint("open ", peers))
	return nil
}

func (f *wires) Connect(ctx context.Context, peers []int) error {
	return f.try(ctx, "connect", peers)
}

func (f *wires) Reach(ctx context.Context, peers []int) error { return f.try(ctx, "reach", peers) }

func (f *wires) try(ctx context.Context, how string, peers []int) error {
	f.before(len(f.said))
	f.said = append(f.said, fmt.Sprint(how, " ", peers))
	if len(f.keys) > 0 {
		err := f.keys[0]
		f.keys = f.keys[1:]
		return err
	}
	if slices.ContainsFunc(peers, func(p int) bool { return f.cut[p] }) {
		<-ctx.Done()
	}
	return ctx.Err()
}

func worldOf(n int) wire.World {
	w := wire.World{Epoch: 1}
	for i := range n {
		w.Order = append(w.Order, i)
	}
	return w
}

// TestLinksBegin: where hosts go on in another world without a peer, the launcher decides that one is lost: an attempt
// that fails at once is followed by others, until the world ends. Elsewhere it ends the start, but for
// one that no one has answered: a peer may be paused, which the launcher knows.
func TestLinksBegin(t *testing.T) {
	key := fmt.Errorf("connect to host 1: %w", link.ErrKey)
	for name, tc := range map[string]struct {
		hosts   int
		elastic bool
		keys    []error
		cut     map[int]bool
		ends    int // the attempt before which the world ends, 0 for none
		back    int // the attempt before which all answer, 0 for none
		goOn    int // how often one goes on after no one has answered
		want    []string
		err     error
	}{
		"all answer":                  {hosts: 3, want: []string{"connect [1 2]"}},
		"a stranger answers":          {hosts: 3, keys: []error{key}, want: []string{"connect [1 2]"}, err: link.ErrKey},
		"nobody answers":              {hosts: 3, cut: map[int]bool{2: true}, want: []string{"connect [1 2]"}, err: context.DeadlineExceeded},
		"nobody answers for long":     {hosts: 3, cut: map[int]bool{2: true}, goOn: 2, want: slices.Repeat([]string{"connect [1 2]"}, 3), err: context.DeadlineExceeded},
		"a peer stood still":          {hosts: 3, cut: map[int]bool{2: true}, goOn: 9, back: 2, want: slices.Repeat([]string{"connect [1 2]"}, 3)},
		"elastic, all answer":         {hosts: 3, elastic: true, want: []string{"connect [1 2]"}},
		"elastic, a stranger answers": {hosts: 3, elastic: true, keys: []error{key, key}, want: slices.Repeat([]string{"connect [1 2]"}, 3)},
		"elastic, many, a stranger":   {hosts: 9, elastic: true, keys: []error{key}, want: slices.Repeat([]string{"open [1 2 3 4 5 6 7 8]", "reach [1 8]"}, 2)},
		"elastic, joiners until it ends": {hosts: 3, elastic: true, keys: slices.Repeat([]error{key}, 100), ends: 4,
			want: slices.Repeat([]string{"connect [1 2]"}, 5), err: link.ErrKey},
		"elastic, nobody until it ends": {hosts: 3, elastic: true, keys: []error{key}, cut: map[int]bool{2: true}, ends: 1,
			want: slices.Repeat([]string{"connect [1 2]"}, 2), err: context.Canceled},
	} {
		synctest.Test(t, func(t *testing.T) {
			of := newLife(t.Context())
			f := &wires{keys: tc.keys, cut: tc.cut}
			f.before = func(n int) {
				switch n {
				case 0:
				case tc.ends:
					of.end()
				case tc.back:
					clear(f.cut)
				}
			}
			began := time.Now()
			l, goOn := newLinking(f, 0, worldOf(tc.hosts), tc.elastic, linkTimeout), 0
			l.goOn = func(err error) bool { goOn++; return errors.Is(err, context.DeadlineExceeded) && goOn <= tc.goOn }
			err := l.begin(of.ctx)
			if !errors.Is(err, tc.err) || !slices.Equal(f.said, tc.want) {
				t.Errorf("%s: %q, %v, want %q, %v", name, f.said, err, tc.want, tc.err)
			}
			if took := time.Since(began); took > time.Duration(1+tc.goOn)*linkTimeout {
				t.Errorf("%s: it took %v", name, took)
			}
			of.stop()
		})
	}
}

// TestLinksRest: hosts that a large world does not reach keep others from being looked for only where they end the job,
// and no one is looked for when the world has ended.
func TestLinksRest(t *testing.T) {
	for name, tc := range map[string]struct {
		elastic bool
		cut     map[int]bool
		ends    int
		want    []string
		told    string
	}{
		"all answer":               {want: []string{"reach [2 8]", "reach [3 7]", "reach [4 6]", "reach [5]"}, told: "[]"},
		"one does not":             {cut: map[int]bool{7: true}, want: []string{"reach [2 8]", "reach [3 7]"}, told: "[[3 7]]"},
		"elastic, two do not":      {elastic: true, cut: map[int]bool{7: true, 5: true}, want: []string{"reach [2 8]", "reach [3 7]", "reach [4 6]", "reach [5]"}, told: "[[3 7] [5]]"},
		"elastic, the world ends":  {elastic: true, ends: 1, want: []string{"reach [2 8]", "reach [3 7]"}, told: "[]"},
		"elastic, it ends without": {elastic: true, cut: map[int]bool{7: true}, ends: 1, want: []string{"reach [2 8]", "reach [3 7]"}, told: "[]"},
	} {
		synctest.Test(t, func(t *testing.T) {
			of := newLife(t.Context())
			f := &wires{cut: tc.cut}
			f.before = func(n int) {
				if n > 0 && n == tc.ends {
					of.end()
				}
			}
			told := [][]int{}
			newLinking(f, 0, worldOf(10), tc.elastic, linkTimeout).rest(of.ctx, time.Minute, func(peers []int, _ error) { told = append(told, peers) })
			if got := fmt.Sprint(told); !slices.Equal(f.said, tc.want) || got != tc.told {
				t.Errorf("%s: %q, told %s, want %q, %s", name, f.said, got, tc.want, tc.told)
			}
			of.stop()
		})
	}
}

// TestAround: in the course of its steps every host meets every other once, and both ends of a link meet at the same
// step.
func TestAround(t *testing.T) {
	for n := 2; n < 12; n++ {
		var order []int
		for i := range n {
			order = append(order, 100-i)
		}
		met := map[[2]int]int{}
		for _, self := range order {
			seen := map[int]bool{self: true}
			for steps := 1; steps <= n/2; steps++ {
				for _, peer := range around(order, self, steps) {
					if seen[peer] {
						t.Errorf("%d hosts: host %d meets host %d twice", n, self, peer)
					}
					seen[peer] = true
					if former, ok := met[[2]int{peer, self}]; ok && former != steps {
						t.Errorf("%d hosts: %d and %d meet at steps %d and %d", n, self, peer, former, steps)
					}
					met[[2]int{self, peer}] = steps
				}
			}
			if len(seen) != n {
				t.Errorf("%d hosts: host %d meets %d", n, self, len(seen)-1)
			}
		}
	}
}

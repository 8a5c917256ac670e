package epoch_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"gorun/collective"
	"gorun/collective/kernel"
)

// What the ranks of TestOperations do.

// process is a rank that trains: a number of steps, and a state that depends on each of them.
type process struct {
	number, rank, size int
	epoch              uint32 // it takes part in
	phase              phase
	dead               bool
	calls              []*call // under way
	steps, goal        int
	state              uint64
	root               int
}

type phase int

const (
	outside phase = iota // of any world
	asking               // whose state is the newest
	taking               // over that one
	adding               // up the next step
)

// call is a request, and the memory that its rank gave for it.
type call struct {
	key      string
	want     *sum   // of an allreduce
	mine     []byte // what the engine may use until the end
	got      []byte
	ended    bool
	err      error
	t        *training
	who      *process
	accepted bool
}

// Complete implements collective.Client.
func (c *call) Complete(_ uint64, r collective.Result) {
	if c.ended {
		c.t.fatalf("%s of process %d ended twice", c.key, c.who.number)
	}
	c.ended, c.err = true, r.Err
	switch {
	case r.Err != nil:
		text := r.Err.Error()
		if !strings.Contains(text, fmt.Sprintf("epoch %d ", c.who.epoch)) && !strings.Contains(text, " left before it submitted its part") {
			c.t.fatalf("%s of process %d: the error does not say why: %s", c.key, c.who.number, text)
		}
	case r.Buffer != nil:
		c.got = slices.Clone(r.Buffer.Bytes()[r.Lo:r.Hi])
		r.Buffer.Release()
	default:
		c.got = slices.Clone(c.mine)
	}
	copy(c.mine, c.t.scribble) // it is the rank's again: a host that still writes it is found, and one that reads it has other sums
	c.t.ended[r.Err == nil]++
}

// submit submits a rank's part. Whatever name it has, its result is the same on all ranks.
func (h *station) submit(p *process, r collective.Request) {
	c := &call{key: fmt.Sprintf("%s %q of epoch %d", r.Kind, r.Name, p.epoch), t: h.t, who: p}
	if r.Kind == collective.Allreduce { // the ranks have come to the same step only now
		c.key += fmt.Sprintf(", step %d", p.steps)
		c.want = h.t.sum(c.key, p)
		r.In = slices.Clone(c.want.parts[p.rank])
		r.Out = r.In
	}
	c.mine = r.In
	r.Epoch, r.Pre, r.Post, r.Client = p.epoch, 1, 1, c
	p.calls, h.used = append(p.calls, c), append(h.used, c)
	c.accepted = true
	if err := h.engine.Submit(p.rank, r); err != nil {
		c.accepted = false
		if h.roster.Epoch == p.epoch && !strings.Contains(err.Error(), " left before it submitted its part") {
			h.t.fatalf("%s of process %d is refused: %v", c.key, p.number, err)
		}
		c.Complete(0, collective.Result{Err: &collective.Error{Text: fmt.Sprintf("epoch %d refused: %v", p.epoch, err)}})
	}
}

func words(of ...uint64) (b []byte) {
	for _, w := range of {
		b = binary.LittleEndian.AppendUint64(b, w)
	}
	return b
}

// ask has all ranks report their steps.
func (h *station) ask(p *process) {
	h.submit(p, collective.Request{Kind: collective.Allgather, Name: "newest", Type: kernel.Int64, Shape: []int{1, 2},
		In: words(uint64(p.steps), p.state)})
}

// sum is what all ranks add to a tensor in a step, and their sum. It depends on who takes part, so that steps done
// twice are seen.
type sum struct {
	parts  [][]byte
	all    []byte
	digest uint64
}

func (s *training) sum(key string, p *process) *sum {
	if known := s.sums[key]; known != nil {
		return known
	}
	total, sums := make([]uint32, s.length), &sum{}
	for rank := range p.size {
		b := make([]byte, 0, 4*s.length)
		for i := range total {
			x := uint32(rank*7919 + p.steps*104729 + int(p.epoch)*31 + i + len(key))
			b = binary.LittleEndian.AppendUint32(b, x)
			total[i] += x
		}
		sums.parts = append(sums.parts, b)
	}
	for _, x := range total {
		sums.all = binary.LittleEndian.AppendUint32(sums.all, x)
	}
	f := fnv.New64a()
	f.Write(sums.all)
	sums.digest = f.Sum64()
	s.sums[key] = sums
	return sums
}

// names are the tensors of a step.
var names = []string{"weights", "bias"}

func (h *station) sumUp(p *process) {
	s := h.t
	for _, k := range s.rng.Perm(len(names)) {
		h.submit(p, collective.Request{Kind: collective.Allreduce, Name: names[k], Type: kernel.Int32, Op: kernel.Sum,
			Shape: []int{s.length}})
	}
}

// think is a turn of a rank.
func (h *station) think(p *process) {
	s := h.t
	if p.dead || p.epoch == 0 || p.phase == outside || slices.ContainsFunc(p.calls, func(c *call) bool { return !c.ended }) {
		return
	}
	for _, c := range p.calls {
		if c.err != nil { // it waits for another world, like a rank that caught the error
			p.phase = outside
			return
		}
		first := s.results[c.key]
		if c.want != nil {
			first = c.want.all
		} else if first == nil {
			s.results[c.key], first = c.got, c.got
		}
		if !bytes.Equal(first, c.got) {
			s.fatalf("%s has another result on process %d", c.key, p.number)
		}
	}
	calls := p.calls
	p.calls = nil
	switch p.phase {
	case asking:
		all, newest := calls[0].got, uint64(0)
		for rank := range p.size {
			if steps := binary.LittleEndian.Uint64(all[16*rank:]); rank == 0 || steps > newest {
				newest, p.root = steps, rank
			}
		}
		p.phase = taking
		h.submit(p, h.broadcast(p))
	case taking:
		steps, state := int(binary.LittleEndian.Uint64(calls[0].got)), binary.LittleEndian.Uint64(calls[0].got[8:])
		past := s.commits[state]
		if len(past) != steps || p.steps > steps || p.steps > 0 && past[p.steps-1] != p.state {
			s.fatalf("process %d has committed %d steps and goes on in epoch %d from %d others", p.number, p.steps, p.epoch, steps)
		}
		p.steps, p.state, p.phase, p.goal = steps, state, adding, steps+3
		h.sumUp(p)
	case adding:
		if p.epoch == s.final && p.steps >= p.goal {
			return
		}
		if len(calls) > 0 { // commit
			past := s.commits[p.state]
			f := fnv.New64a()
			f.Write(words(p.state))
			for _, c := range slices.SortedFunc(slices.Values(calls), func(a, b *call) int { return strings.Compare(a.key, b.key) }) {
				f.Write(words(c.want.digest))
			}
			p.steps, p.state = p.steps+1, f.Sum64()
			s.commits[p.state] = append(slices.Clone(past), p.state)
		}
		if p.epoch != s.final || p.steps < p.goal {
			h.sumUp(p)
		}
	}
}

func (h *station) broadcast(p *process) collective.Request {
	b := words(uint64(p.steps), p.state)
	return collective.Request{Kind: collective.Broadcast, Name: "state", Root: p.root, Type: kernel.Int64, Shape: []int{2}, In: b, Out: b}
}

package session_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"sync"

	"gorun/collective"
	"gorun/collective/kernel"
)

// engine joins the requests of its ranks by name, at once and in the goroutine of the last one.
type engine struct {
	size  int
	alloc collective.Allocator

	mu      sync.Mutex
	waiting map[string][]part
	spare   [][]part
	left    []int
	hold    bool   // complete nothing before release
	name    string // of the last request
	refuse  error
}

type part struct {
	rank int
	r    collective.Request
}

func newEngine(size int, alloc collective.Allocator) *engine {
	return &engine{size: size, alloc: alloc, waiting: map[string][]part{}}
}

func (e *engine) Submit(rank int, r collective.Request) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.refuse != nil {
		return e.refuse
	}
	e.name = r.Name
	parts, ok := e.waiting[r.Name]
	if !ok && len(e.spare) > 0 {
		parts = e.spare[len(e.spare)-1]
		e.spare = e.spare[:len(e.spare)-1]
	}
	parts = append(parts, part{rank, r})
	e.waiting[r.Name] = parts
	if len(parts) < e.size || e.hold {
		return nil
	}
	delete(e.waiting, r.Name)
	e.run(parts)
	clear(parts)
	e.spare = append(e.spare, parts[:0])
	return nil
}

func (e *engine) Resolve(uint32, int, uint32, string) {}

// Leave fails what waits, as the rank's part will never come.
func (e *engine) Leave(_ int, _ uint32, rank int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.left = append(e.left, rank)
	if e.hold {
		return
	}
	for name, parts := range e.waiting {
		delete(e.waiting, name)
		for _, p := range parts {
			p.r.Client.Complete(p.r.Handle, collective.Result{Err: &collective.Error{Code: collective.CodeShutdown, Text: fmt.Sprintf("rank %d left", rank)}})
		}
	}
}

func (e *engine) holdBack() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hold = true
}

// release completes what was held back.
func (e *engine) release() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.hold = false
	for name, parts := range e.waiting {
		delete(e.waiting, name)
		for _, p := range parts {
			p.r.In[0]++ // still mapped, whatever became of the rank
			p.r.Client.Complete(p.r.Handle, collective.Result{})
		}
	}
}

func (e *engine) gone() []int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]int(nil), e.left...)
}

func (e *engine) last() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.name
}

func (e *engine) pending() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.waiting)
}

func (e *engine) run(parts []part) {
	first := parts[0].r
	var result collective.Result
	for _, p := range parts[1:] {
		if p.r.Kind != first.Kind || p.r.Type != first.Type {
			result.Err = &collective.Error{Code: collective.CodeMismatch, Text: fmt.Sprintf("ranks %d and %d disagree about %s", parts[0].rank, p.rank, first.Name)}
		}
	}
	if result.Err == nil {
		switch first.Kind {
		case collective.Allreduce:
			e.sum(parts)
		case collective.Broadcast:
			for _, src := range parts {
				for _, dst := range parts {
					if src.rank == src.r.Root {
						copy(dst.r.Out, src.r.In)
					}
				}
			}
		case collective.Allgather:
			result = e.gather(parts)
		}
	}
	for i := range parts {
		if result.Buffer != nil && i > 0 { // before the first rank can release it
			result.Buffer.Retain()
		}
	}
	for _, p := range parts {
		p.r.Client.Complete(p.r.Handle, result)
	}
}

// sum adds float32 and copies anything else.
func (e *engine) sum(parts []part) {
	le := binary.LittleEndian
	scale := func(p part) float32 { return float32(p.r.Pre) }
	first := parts[0].r
	if first.Type != kernel.Float32 {
		for _, p := range parts {
			copy(p.r.Out, p.r.In)
		}
		return
	}
	for i := 0; i < len(first.In); i += 4 {
		var total float32
		for _, p := range parts {
			total += math.Float32frombits(le.Uint32(p.r.In[i:])) * scale(p)
		}
		if first.Op == kernel.Average {
			total /= float32(len(parts))
		}
		for _, p := range parts {
			le.PutUint32(p.r.Out[i:], math.Float32bits(total*float32(p.r.Post)))
		}
	}
}

func (e *engine) gather(parts []part) collective.Result {
	byRank := make([]collective.Request, e.size)
	total, rows := 0, make([]int, e.size)
	for _, p := range parts {
		byRank[p.rank] = p.r
		rows[p.rank] = p.r.Shape[0]
		total += len(p.r.In)
	}
	buf, err := e.alloc.Alloc(total)
	if err != nil {
		return collective.Result{Err: err}
	}
	at, n := 0, 0
	for rank, r := range byRank {
		at += copy(buf.Bytes()[at:], r.In)
		n += rows[rank]
	}
	return collective.Result{Buffer: buf, Hi: total, Shape: append([]int{n}, parts[0].r.Shape[1:]...), Rows: rows}
}

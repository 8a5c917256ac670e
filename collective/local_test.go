package collective_test

import (
	"sync"
	"sync/atomic"
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/contrib/must"
)

// local is a world of one host whose ranks run one operation after the other.
type local struct {
	engine *collective.Engine
	parts  []collective.Request
	done   chan struct{}
	left   atomic.Int32
}

func (l *local) Complete(uint64, collective.Result) {
	if l.left.Add(-1) == 0 {
		l.done <- struct{}{}
	}
}

func newLocal(t testing.TB, ranks, n int) *local {
	l := &local{engine: collective.New(collective.Config{Record: true}), done: make(chan struct{}, 1)}
	must.Do(t, l.engine.SetWorld(collective.EngineWorld{Hosts: []collective.HostRanks{{Name: "host1", Ranks: even(1, ranks)[0]}}, Size: ranks}))
	for range ranks {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(i % 3)
		}
		l.parts = append(l.parts, collective.Request{Kind: collective.Allreduce, Name: "x", Type: kernel.Float32, Op: kernel.Sum,
			Pre: 1, Post: 1, Shape: []int{n / 4}, In: b, Out: b, Client: l})
	}
	var running sync.WaitGroup
	running.Go(func() { l.engine.Run(t.Context()) })
	t.Cleanup(func() {
		l.engine.Close()
		running.Wait()
	})
	return l
}

func (l *local) round() {
	l.left.Store(int32(len(l.parts)))
	for rank := range l.parts {
		if err := l.engine.Submit(rank, l.parts[rank]); err != nil {
			panic(err)
		}
	}
	<-l.done
}

// A local operation ends although no one runs the workers.
func TestWithoutWorkers(t *testing.T) {
	e := collective.New(collective.Config{Inline: -1})
	must.Do(t, e.SetWorld(collective.EngineWorld{Hosts: []collective.HostRanks{{Name: "host1", Ranks: []int{0}}}, Size: 1}))
	p := &promise{t: t, what: "sum", ch: make(chan collective.Result, 1)}
	b := make([]byte, 1<<20)
	err := e.Submit(0, collective.Request{Kind: collective.Allreduce, Name: "x", Type: kernel.Int8, Op: kernel.Sum, Pre: 1, Post: 1,
		Shape: []int{len(b)}, In: b, Out: b, Handle: 42, Client: p})
	must.Do(t, err)
	p.good()
	e.Close()
}

package collective_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync"

	"gorun/collective"
	"gorun/collective/kernel"
)

// ends is a client that passes on how requests ended.
type ends chan collective.Result

func (c ends) Complete(_ uint64, r collective.Result) { c <- r }

// Two ranks of one host add up what they have. With several hosts each has an engine of its own, with a Transport
// between them, and the same world but for Self.
func Example() {
	e := collective.New(collective.Config{})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { e.Run(ctx) })
	defer func() {
		e.Close()
		cancel()
		running.Wait()
	}()
	world := collective.EngineWorld{Epoch: 1, Size: 2, Hosts: []collective.HostRanks{{ID: 0, Name: "here", Ranks: []int{0, 1}}}}
	if err := e.SetWorld(world); err != nil {
		fmt.Println(err)
		return
	}
	ended := make(ends, 2)
	var tensors [2][]byte
	for rank := range tensors {
		tensors[rank] = binary.LittleEndian.AppendUint32(nil, uint32(20+rank))
		// In and Out are the same memory: the result takes the input's place.
		err := e.Submit(rank, collective.Request{Kind: collective.Allreduce, Name: "sum", Type: kernel.Uint32, Op: kernel.Sum,
			Pre: 1, Post: 1, Shape: []int{1}, In: tensors[rank], Out: tensors[rank], Client: ended})
		if err != nil {
			fmt.Println(err)
			return
		}
	}
	for range tensors {
		if r := <-ended; r.Err != nil {
			fmt.Println(r.Err)
		}
	}
	fmt.Println(binary.LittleEndian.Uint32(tensors[0]), binary.LittleEndian.Uint32(tensors[1]))
	// Output: 41 41
}

//go:build linux

// Command gorank is a rank written in Go: it adds up a number from each rank, and sends every rank its neighbour's.
//
//	go build -o gorank ./contrib/examples/gorank && gorun -np 4 ./gorank
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/worker/rank"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "gorank:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	r, err := rank.JoinJob(ctx, os.Getenv)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	self, size := r.Welcome.Rank, r.Welcome.Size

	// Tensors lie in memory shared with the daemon, so nothing is copied.
	memory, err := r.Alloc(16)
	if err != nil {
		return err
	}
	mine, theirs := rank.Piece{Memory: memory, Bytes: 8}, rank.Piece{Memory: memory, Offset: 8, Bytes: 8}
	number := func(p rank.Piece) int64 { return int64(binary.LittleEndian.Uint64(memory.Bytes[p.Offset:])) }
	binary.LittleEndian.PutUint64(memory.Bytes, uint64(self+1))

	// A send and a receive at once: each has its name, and ranks may submit in any order.
	if size > 1 {
		next, before := (self+1)%size, (self+size-1)%size
		sent, err := r.Submit(&rank.Operation{Kind: collective.Send, Name: fmt.Sprint("from ", self), Root: next, Type: kernel.Int64, Shape: []int{1}, In: mine})
		if err != nil {
			return err
		}
		if _, err := r.Do(&rank.Operation{Kind: collective.Recv, Name: fmt.Sprint("from ", before), Root: before, Type: kernel.Int64, Shape: []int{1}, Out: theirs}); err != nil {
			return err
		}
		if _, err := r.Wait(sent); err != nil {
			return err
		}
	}
	if _, err := r.Do(&rank.Operation{Kind: collective.Allreduce, Name: "sum", Type: kernel.Int64, Op: kernel.Sum, Shape: []int{1}, In: mine, Out: mine}); err != nil {
		return err
	}
	fmt.Printf("rank %d of %d: the neighbour has %d, all together %d\n", self, size, number(theirs), number(mine))
	return nil
}

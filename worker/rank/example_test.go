package rank_test

import (
	"context"
	"fmt"
	"os"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/worker/rank"
)

// A rank that is a Go program: gorun -np 4 ./program. contrib/examples/gorank is a whole one.
func ExampleJoinJob() {
	r, err := rank.JoinJob(context.Background(), os.Getenv)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	memory, err := r.Alloc(4 * 1000)
	if err != nil {
		fmt.Println(err)
		return
	}
	gradient := rank.Piece{Memory: memory, Bytes: 4 * 1000}
	_, err = r.Do(&rank.Operation{Kind: collective.Allreduce, Name: "gradient", Type: kernel.Float32, Op: kernel.Average,
		Shape: []int{1000}, In: gradient, Out: gradient})
	if err != nil {
		fmt.Println(err)
	}
	// Output: join world: no rank of a job: GORUN_PROCESS is missing or wrong; start it by gorun
}

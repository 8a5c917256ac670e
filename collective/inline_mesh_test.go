package collective_test

import (
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
	"gorun/collective/link"
)

// A small allreduce needs the ready messages and nothing else; a larger one waits for data. Groups too.
func TestSmallAllreduceIsOneMessage(t *testing.T) {
	c := newCluster(t, layout{{0, 3}, {1, 4}, {2, 5}}, 21, collective.Config{})
	if got := c.addGroup([]int{0, 1, 4}); got != 1 {
		t.Fatalf("group %d", got)
	}
	c.mesh.setHold(func(_, _ int, h link.Header) bool { return h.Kind == link.Data })
	for range 3 {
		c.allreduce("small", kernel.Float32, kernel.Average, 500, 2, 0.5)()
		c.allreduce("byte", kernel.Bool, kernel.Max, 1, 1, 1)()
	}
	var promises []*promise
	for _, rank := range []int{0, 1, 4} {
		b := []byte{byte(rank + 1)}
		promises = append(promises, c.submit(rank, collective.Request{Kind: collective.Allreduce, Name: "small", Group: 1,
			Type: kernel.Uint8, Op: kernel.Product, Shape: []int{1}, In: b, Out: b}))
		defer func() {
			if b[0] != 1*2*5 {
				t.Errorf("rank %d of the group has %d", rank, b[0])
			}
		}()
	}
	ended(promises...)
	finish := c.allreduce("large", kernel.Float32, kernel.Sum, 1<<20, 1, 1)
	ended(c.everywhere(barrier)...) // all hosts have heard of all words by then
	if len(c.engines[0].Pending(epochStart)) == 0 {
		t.Error("the large one needed no data")
	}
	c.mesh.setHold(nil)
	finish()
}

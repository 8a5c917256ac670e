package collective_test

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"gorun/collective"
	"gorun/collective/link"
	"gorun/contrib/must"
)

// A host that is far ahead stops sending contributions with its ready messages: the operations after that are exchanged
// directly, and come to the same.
func TestFewContributionsAreSentAhead(t *testing.T) {
	const n, count = 128 << 10, 20
	c := newCluster(t, even(3, 1), 32, collective.Config{})
	var carried sync.Map // numbers of messages with a contribution
	var exchanged atomic.Bool
	c.mesh.setHold(func(from, to int, h link.Header) bool {
		if from == 0 && to == 1 && h.Kind == link.Control && h.Length > n {
			carried.Store(h.Offset, true)
		}
		if h.Kind == link.Data {
			exchanged.Store(true)
		}
		return false
	})
	var promises []*promise
	var tensors [][]byte
	for rank := range 3 {
		for i := range count {
			b := bytes.Repeat([]byte{byte(rank + i)}, n)
			tensors = append(tensors, b)
			promises = append(promises, c.submit(rank, sumIn(0, fmt.Sprint(i), b)))
		}
		if rank == 0 {
			must.Soon(t, "host 1 has declared all", c.mesh.idle)
			got := 0
			carried.Range(func(any, any) bool { got++; return true })
			if got != 1<<20/n {
				t.Errorf("host 1 sent %d contributions ahead", got)
			}
		}
	}
	for i, p := range promises {
		p.good()
		if want := bytes.Repeat([]byte{byte(3*(i%count) + 3)}, n); !bytes.Equal(tensors[i], want) {
			t.Fatalf("operation %d has %d, want %d", i%count, tensors[i][0], want[0])
		}
	}
	if !exchanged.Load() {
		t.Error("nothing was exchanged as segments")
	}
}

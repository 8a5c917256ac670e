package collective

import (
	"time"

	"gorun/collective/flight"
)

// Count is what the operations of a kind have done on this host since the engine began. Times are sums over operations,
// which run beside each other.
type Count struct {
	Kind    Kind
	Ended   uint64
	Failed  uint64        // of Ended, with an error
	Bytes   uint64        // of a rank's tensor, for each operation
	Waiting time.Duration // from the first rank of this host until all ranks had come
	Running time.Duration // from then until the end
}

// counts holds a Count for each kind; 0 is for operations that ended before a rank of this host contributed.
type counts [len(kinds)]Count

// add counts an operation that has ended.
func (c *counts) add(o *flight.Operation) {
	of := &c[min(int(o.Kind), len(c)-1)]
	of.Ended++
	of.Bytes += uint64(o.Size)
	if o.Outcome == flight.Failed {
		of.Failed++
	}
	switch {
	case o.Began != 0:
		of.Running += time.Duration(max(o.Ended-o.Began, 0))
		if o.First != 0 {
			of.Waiting += time.Duration(max(o.Began-o.First, 0))
		}
	case o.First != 0: // it never began
		of.Waiting += time.Duration(max(o.Ended-o.First, 0))
	}
}

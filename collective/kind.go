package collective

import "fmt"

// Kind is a collective operation. The numbers are part of the rank protocol.
type Kind uint8

// Operations.
const (
	Allreduce     Kind = 1
	Allgather     Kind = 2
	Broadcast     Kind = 3
	Barrier       Kind = 4
	Alltoall      Kind = 5
	ReduceScatter Kind = 6
	AddGroup      Kind = 7 // all ranks of the world agree that some of them are a group, or its members declare it
	RemoveGroup   Kind = 8
	Join          Kind = 9  // the rank has no more data; others go on with its zeros until all have joined
	Reduce        Kind = 10 // Allreduce, but only the root gets the result
	Gather        Kind = 11 // Allgather, but only the root gets the result
	Scatter       Kind = 12 // rows of the root's tensor, some for each rank
	Send          Kind = 13 // to one rank, Root, which calls Recv under the same name; both end together
	Recv          Kind = 14 // from one rank, Root
	Peek          Kind = 15 // which ranks are sending something to this one; ends at once
)

var kinds = [...]string{Allreduce: "allreduce", Allgather: "allgather", Broadcast: "broadcast", Barrier: "barrier",
	Alltoall: "alltoall", ReduceScatter: "reducescatter", AddGroup: "add process set",
	RemoveGroup: "remove process set", Join: "join",
	Reduce: "reduce", Gather: "gather", Scatter: "scatter", Send: "send", Recv: "recv", Peek: "peek"}

func (k Kind) String() string {
	if k == 0 || int(k) >= len(kinds) {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return kinds[k]
}

// provides reports whether results come in memory of the engine instead of Out.
func (k Kind) provides() bool { return k.ragged() || k == ReduceScatter || k == Reduce }

// ragged reports whether ranks may differ in the first dimension.
func (k Kind) ragged() bool { return k == Allgather || k.exchanges() }

// hasTensor reports whether elements are moved.
func (k Kind) hasTensor() bool {
	return k != Barrier && k != AddGroup && k != RemoveGroup && k != Join && k != Peek
}

func (k Kind) reduces() bool { return k == Allreduce || k == ReduceScatter || k == Reduce }

// rooted reports whether the root of operations of a kind matters.
func (k Kind) rooted() bool { return k == Broadcast || k >= Reduce && k <= Recv }

// exchanges reports whether ranks have splits for each other.
func (k Kind) exchanges() bool { return k == Alltoall || k == Gather || k == Scatter }

// joins reports whether an operation can do without the ranks that joined.
func (k Kind) joins() bool { return k == Allreduce || k == Barrier }

package collective

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	"gorun/collective/kernel"
)

// Request is one rank's contribution to an operation. Ranks meet by Group and Name, in any order of submission.
// The engine keeps Shape, In and Out until it calls Complete.
//
// What some fields mean depends on the kind:
//
//	               Root                   Pre                   Post                  Splits
//	Allreduce      signature, 0 for none  factor of each input  factor of the result
//	ReduceScatter                         factor of each input  factor of the result
//	Reduce         rank with the result   factor of each input  factor of the result
//	Broadcast      rank with the tensor   1 + signature
//	Alltoall                              (dealing)             (dealing)             rows for each rank
//	Scatter        rank with the tensor   (dealing)             (dealing)             of the root: rows for each rank
//	Gather         rank with the result   (dealing)             (dealing)
//	Send, Recv     the other rank
//	RemoveGroup    the group
//
// Ranks are global ones. A factor is 1 for none. A signature identifies the tensors that are packed into this one:
// ranks with another one are refused. What is in brackets, or not there, the engine sets.
type Request struct {
	// Epoch of the world that the rank is in: of another one than the engine's it is refused. 0 is any.
	Epoch uint32
	Kind  Kind
	Name  string // unique among the rank's operations in flight
	// Group is the process set; 0 is the world. AddGroup: the number under which its members declare it, 0 if all ranks
	// add it.
	Group uint32
	Type  kernel.Type
	Op    kernel.Op // Allreduce, ReduceScatter, Reduce
	// Coding is how sums of floats travel between hosts; the same on all ranks.
	Coding kernel.Coding
	Root   int
	Pre    float64
	Post   float64
	Shape  []int // of this rank's tensor. AddGroup: the members' global ranks
	// Splits are the rows for each rank of the group, from the first row on. Alltoall: nil for the same number. Scatter,
	// of the root: nil for the same number, and one more for the first ranks if it does not come out even. Submit copies
	// them, and the Shape of an AddGroup.
	Splits []int
	// Pending are the names of allreduces that the rank began before this request and submits after it
	// (worker/session). Join: those in the world, for which no zeros are taken. RemoveGroup: those in that group, which
	// end as if the group still existed. Engine.Resolve takes a name back.
	Pending []string
	// Follows marks a contribution that was pending until another operation had ended. All ranks of the group set it
	// or none does.
	Follows bool
	In      []byte // the rank's tensor, nil for Recv; the engine writes it only if Out is the same memory
	Out     []byte // Allreduce, Broadcast, Recv: where the result goes; may be In. Nil for the other kinds
	Handle  uint64 // the client's own name for the request, handed back in Complete
	Client  Client

	stamp int // Join: when, in microseconds
}

// signature identifies the tensors that are packed into this one; it is 0 for one tensor.
func (r *Request) signature() int {
	switch r.Kind {
	case Allreduce:
		return r.Root
	case Broadcast:
		return int(r.Pre) - 1
	}
	return 0
}

// Client hears how a request ended. Complete is called exactly once per accepted request, from any
// goroutine, and must not block.
type Client interface {
	Complete(handle uint64, r Result)
}

// Result is the end of a request. Shape and Rows are the engine's, and used for other results once Complete has
// returned.
type Result struct {
	Err error // nil, or a *Error
	// Buffer holds the results of kinds that bring their own memory (Allgather, Alltoall, ReduceScatter,
	// Reduce, Gather, Scatter),
	// this rank's in the bytes [Lo, Hi). All ranks of a host may share it: it is read-only, and every
	// client that gets it calls Release once.
	Buffer Buffer
	Lo, Hi int
	Shape  []int // shape of the result in Buffer
	// Took is the time from when all hosts had declared that their ranks were ready until the end.
	Took time.Duration
	// Rows are, of an Allgather, Alltoall, Gather or Scatter, the first dimension that each rank of the group contributes.
	// AddGroup: the group. Join: the last rank to join. Peek: the ranks that send.
	Rows []int
}

// Buffer is result memory that ranks of the host can see.
type Buffer interface {
	Bytes() []byte
	Retain()
	Release()
}

// Allocator hands out result memory (worker/shm: sealed memfds; tests: the heap).
type Allocator interface {
	Alloc(n int) (Buffer, error)
}

// Code is the kind of failure that ended a request; bindings map it to exceptions.
type Code uint8

// Failures.
const (
	CodeInvalid  Code = 1 // this rank's own arguments (ValueError at the call)
	CodeMismatch Code = 2 // ranks submitted different things under one name
	CodeShutdown Code = 3 // a rank left before it contributed
	CodeAborted  Code = 4 // the world ended (a host died)
	CodeInternal Code = 5
)

// Error is a failed operation as every rank sees it.
type Error struct {
	Code Code
	Text string
}

func (e *Error) Error() string { return e.Text }

func refuse(format string, args ...any) *Error {
	return &Error{Code: CodeInvalid, Text: fmt.Sprintf(format, args...)}
}

// describeTensor writes a tensor as float32[10,3].
func describeTensor(t kernel.Type, shape []int) string {
	return t.String() + strings.ReplaceAll(fmt.Sprint(shape), " ", ",")
}

// joinName is the name of the operation that all ranks submit in the end.
const joinName = "join"

// groupsName is the name of the operations on groups.
const groupsName = "process sets"

// MaxName is the longest name of an operation, in bytes.
const MaxName = 4096

const maxDims = 32

// agrees reports whether two normalized requests may meet. Only the rows of ragged kinds may differ.
func (r *Request) agrees(o *Request) bool {
	if r.Kind != o.Kind || r.Type != o.Type || r.Op != o.Op || r.Root != o.Root || r.Coding != o.Coding ||
		math.Float64bits(r.Pre) != math.Float64bits(o.Pre) || math.Float64bits(r.Post) != math.Float64bits(o.Post) ||
		len(r.Shape) != len(o.Shape) {
		return false
	}
	if r.Kind.ragged() && len(r.Shape) > 0 {
		return slices.Equal(r.Shape[1:], o.Shape[1:])
	}
	return slices.Equal(r.Shape, o.Shape)
}

// rows returns what a rank contributes where ranks may differ, and when it joined; 0 for other kinds.
func (r *Request) rows() int {
	switch {
	case r.Kind.ragged() && len(r.Shape) > 0:
		return r.Shape[0]
	case r.Kind == Join:
		return r.stamp
	}
	return 0
}

// BytesOf returns the size of a tensor, false if a dimension is negative, there are too many, or the
// size of a tensor with at least one row overflows.
func BytesOf(shape []int, t kernel.Type) (int, bool) {
	if len(shape) > maxDims {
		return 0, false
	}
	n, zero := uint(t.Size()), false
	for _, d := range shape {
		if d < 0 {
			return 0, false
		}
		if d == 0 {
			zero = true
			continue
		}
		hi, lo := bits.Mul(n, uint(d))
		if hi != 0 || lo > math.MaxInt {
			return 0, false
		}
		n = lo
	}
	if zero {
		return 0, true
	}
	return int(n), true
}

// Package codec encodes and decodes the messages of the rank protocol: what a rank and the daemon of its host send each
// other, and the layout of the memory in which the ranks of a host meet. PROTOCOL.md here describes the protocol.
//
// The package is pure. It appends messages to buffers and reads them from buffers; what it decodes are views of the
// buffer. Every decoder accepts any bytes and returns ErrMalformed where the layout is broken; whether the numbers
// in a sound message make sense is for its receiver to check (worker/session for the daemon, worker/rank for a rank in
// Go).
//
//   - codec.go: the types of messages, flags and limits
//   - rank.go: messages from a rank
//   - daemon.go: messages from the daemon
//   - slots.go: the memory of shared-memory slots
//   - tables.go: the numbers for the bindings
//
// The bindings for Python and C speak the same protocol. Their numbers are generated from tables.go (go generate), and
// testdata/rankproto.txt has golden vectors for all of them.
package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"gorun/collective"
)

// Types of messages.
const (
	TypeHello   = 1 // in refusals only: the message itself starts with a magic number
	TypeAlloc   = 2
	TypeSubmit  = 3
	TypeRelease = 4
	TypeFree    = 5
	TypeBye     = 6
	TypeEnv     = 7
	TypeSlots   = 8  // both ways
	TypeWake    = 9  // from the daemon
	TypeTraffic = 10 // both ways
	TypeShow    = 11 // from the daemon
	TypeHide    = 12 // from the daemon
	TypeKept    = 13
	TypeBatch   = 14
	TypeMailbox = 15 // both ways
	TypeMail    = 16

	TypeWelcome   = 65
	TypeRegion    = 66
	TypeFail      = 67
	TypeComplete  = 68
	TypeGoodbye   = 69
	TypeGone      = 70
	TypeChanged   = 71
	TypeCompleted = 72
)

const (
	magic = "GORUNRK1"

	Version  = 1              // of the protocol
	NoRegion = math.MaxUint32 // the number of no region
	Follows  = math.MaxUint32 // the only split of an allreduce that follows another operation

	takesSlot  = 0x80 // added to SUBMIT's kind: the rank would take a slot
	takesWide  = 0x80 // added to SUBMIT's number of dimensions: also a wide slot
	takesBelt  = 0x40 // added to the same: also a slot on the belt
	codingBits = 4    // of SUBMIT's reduction; the bits above them are the coding
	slotsThere = 2    // flag of WELCOME: there are slots
	batchTaken = 4    // flag of WELCOME: BATCH is understood
	beltThere  = 8    // flag of WELCOME: there is a belt
	mailTaken  = 16   // flag of WELCOME: MAILBOX is understood
	fdComes    = 1    // flag of COMPLETE: a descriptor comes along
	hostsGo    = 1    // flags of CHANGED
	hostsCome  = 2
)

// Limits.
const (
	MaxMessage  = 64 << 10  // bytes of a message from a rank
	MaxAnswer   = 256 << 10 // bytes of a message from the daemon
	MaxName     = collective.MaxName
	MaxDims     = 32
	MaxInFlight = 65536 // operations of a rank in flight, results that it still reads included

	maxEnv  = 4096
	maxText = 8 << 10   // longer texts are cut
	maxTook = 1<<31 - 1 // microseconds that the flags of COMPLETE can carry
)

var le = binary.LittleEndian

// ErrMalformed is the error of every decoder.
var ErrMalformed = errors.New("malformed message")

// Malformed returns an ErrMalformed with more detail.
func Malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// Type returns the type of a message that has at least PairLen bytes.
func Type(b []byte) uint32 { return le.Uint32(b) }

// Messages of a type and one number: RELEASE, FREE, BYE, SLOTS, WAKE, TRAFFIC, KEPT, BATCH, MAILBOX and MAIL. No message is shorter.
const (
	offType   = 0
	pairValue = 4
	PairLen   = 8
)

// AppendPair encodes a message with a single number.
func AppendPair(b []byte, kind, value uint32) []byte {
	return le.AppendUint32(le.AppendUint32(b, kind), value)
}

// DecodePair returns the number of a message with a single one.
func DecodePair(b []byte) (uint32, error) {
	switch {
	case len(b) < pairValue:
		return 0, Malformed("%d bytes", len(b))
	case len(b) != PairLen:
		return 0, Malformed("message of type %d with %d bytes", Type(b), len(b))
	}
	return le.Uint32(b[pairValue:]), nil
}

// put appends a message by its layout.
func put(b []byte, layout any) []byte {
	b, err := binary.Append(b, le, layout)
	if err != nil {
		panic(err) // it is no layout
	}
	return b
}

// get reads a message by its layout, which must be all of it.
func get(b []byte, layout any) bool {
	rest, ok := getText(b, layout)
	return ok && len(rest) == 0
}

// getText reads the beginning of a message by its layout, and returns the rest.
func getText(b []byte, layout any) (text []byte, ok bool) {
	n, err := binary.Decode(b, le, layout)
	return b[n:], err == nil
}

// extend grows b by n bytes and returns them.
func extend(b *[]byte, n int) []byte {
	old := len(*b)
	if cap(*b)-old < n {
		*b = append(*b, make([]byte, n)...)
	}
	*b = (*b)[:old+n]
	return (*b)[old:]
}

// cut shortens a text to what a message carries, and makes it valid UTF-8, which the binding insists on.
func cut(text string) string {
	if len(text) > maxText {
		text = text[:maxText]
	}
	return strings.ToValidUTF8(text, "")
}

// ints reads n numbers and returns what follows.
func ints(b []byte, n int) ([]int, []byte) {
	if n == 0 {
		return nil, b
	}
	v := make([]int, n)
	for i := range v {
		v[i] = int(int64(le.Uint64(b[8*i:])))
	}
	return v, b[8*n:]
}

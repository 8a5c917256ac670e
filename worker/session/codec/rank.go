package codec

import (
	"cmp"
	"math"
	"strings"
	"unicode/utf8"

	"gorun/collective"
	"gorun/collective/kernel"
)

// Layouts of the messages of a rank but SUBMIT.
type (
	hello struct {
		Magic                         [8]byte
		Version, Process, PID, Unused uint32
		Token                         [32]byte
		Zero                          [8]byte
	}
	alloc struct {
		Type, Request uint32
		Bytes         uint64
	}
)

const envText = 4 // offset in ENV

// Offsets in SUBMIT. Little-endian, no padding.
const (
	submitHandle    = 4
	submitKind      = 8
	submitDtype     = 9
	submitOp        = 10
	submitNdim      = 11
	submitRoot      = 12
	submitGroup     = 16
	submitInRegion  = 20
	submitOutRegion = 24
	submitNameLen   = 28
	submitSplits    = 32
	submitPre       = 36
	submitPost      = 44
	submitInOffset  = 52
	submitInBytes   = 60
	submitOutOffset = 68
	submitOutBytes  = 76
	submitDims      = 84
)

// Hello is the first message of a session.
type Hello struct {
	Version uint32
	Process int
	PID     int
	Token   [32]byte
}

// AppendHello encodes HELLO.
func AppendHello(b []byte, h Hello) []byte {
	m := hello{Version: h.Version, Process: uint32(h.Process), PID: uint32(h.PID), Token: h.Token}
	copy(m.Magic[:], magic)
	return put(b, m)
}

// DecodeHello decodes HELLO.
func DecodeHello(b []byte) (Hello, error) {
	var m hello
	if !get(b, &m) || string(m.Magic[:]) != magic {
		return Hello{}, Malformed("not a hello")
	}
	if m.Process > math.MaxInt32 || m.Unused != 0 || m.Zero != [8]byte{} {
		return Hello{}, Malformed("hello with unknown fields")
	}
	return Hello{m.Version, int(m.Process), int(m.PID), m.Token}, nil
}

// AppendAlloc encodes ALLOC.
func AppendAlloc(b []byte, request uint32, n uint64) []byte {
	return put(b, alloc{TypeAlloc, request, n})
}

// DecodeAlloc decodes ALLOC.
func DecodeAlloc(b []byte) (request uint32, n uint64, err error) {
	var m alloc
	if !get(b, &m) {
		return 0, 0, Malformed("alloc of %d bytes", len(b))
	}
	return m.Request, m.Bytes, nil
}

// DecodeEnv decodes ENV, a variable as NAME=value.
func DecodeEnv(b []byte) (name, value string, err error) {
	if len(b) < envText || len(b) > maxEnv || !utf8.Valid(b[envText:]) {
		return "", "", Malformed("variable of %d bytes", len(b))
	}
	name, value, ok := strings.Cut(string(b[envText:]), "=")
	if !ok || name == "" || strings.ContainsRune(name+value, 0) {
		return "", "", Malformed("not a variable")
	}
	return name, value, nil
}

// Piece is a part of one of the rank's regions.
type Piece struct {
	Region        uint32
	Offset, Bytes uint64
}

// Call is the part of SUBMIT that has the same length for every operation.
type Call struct {
	Handle    uint32
	Kind      collective.Kind
	Type      kernel.Type
	Op        kernel.Op
	Coding    kernel.Coding
	Root      int32
	Group     uint32
	Pre, Post float64 // to encode, 0 is 1
	In, Out   Piece
	TakesSlot bool // the rank would take a slot for the next use of the name
	TakesWide bool // also a wide one
	TakesBelt bool // also one on the belt
}

// Submit is SUBMIT as it is decoded: the slices are views of the message.
type Submit struct {
	Call
	Dims   []byte // 8 bytes each
	Splits []byte // 4 bytes each
	Name   []byte
}

// AppendSubmit encodes SUBMIT.
func AppendSubmit(b []byte, c *Call, shape, splits []int, name string) []byte {
	m := extend(&b, submitDims)
	le.PutUint32(m[offType:], TypeSubmit)
	le.PutUint32(m[submitHandle:], c.Handle)
	m[submitKind], m[submitDtype], m[submitNdim] = byte(c.Kind), byte(c.Type), byte(len(shape))
	m[submitOp] = byte(c.Op) | byte(c.Coding)<<codingBits
	if c.TakesSlot {
		m[submitKind] |= takesSlot
	}
	if c.TakesWide {
		m[submitNdim] |= takesWide
	}
	if c.TakesBelt {
		m[submitNdim] |= takesBelt
	}
	le.PutUint32(m[submitRoot:], uint32(c.Root))
	le.PutUint32(m[submitGroup:], c.Group)
	le.PutUint32(m[submitInRegion:], c.In.Region)
	le.PutUint32(m[submitOutRegion:], c.Out.Region)
	le.PutUint32(m[submitNameLen:], uint32(len(name)))
	le.PutUint32(m[submitSplits:], uint32(len(splits)))
	le.PutUint64(m[submitPre:], math.Float64bits(cmp.Or(c.Pre, 1)))
	le.PutUint64(m[submitPost:], math.Float64bits(cmp.Or(c.Post, 1)))
	le.PutUint64(m[submitInOffset:], c.In.Offset)
	le.PutUint64(m[submitInBytes:], c.In.Bytes)
	le.PutUint64(m[submitOutOffset:], c.Out.Offset)
	le.PutUint64(m[submitOutBytes:], c.Out.Bytes)
	for _, n := range shape {
		b = le.AppendUint64(b, uint64(n))
	}
	for _, n := range splits {
		b = le.AppendUint32(b, uint32(int32(n)))
	}
	return append(b, name...)
}

// DecodeSubmit decodes SUBMIT into m, without garbage.
func DecodeSubmit(b []byte, m *Submit) error {
	if len(b) < submitDims {
		return Malformed("submit of %d bytes", len(b))
	}
	wide, belt, ndim := b[submitNdim]&takesWide != 0, b[submitNdim]&takesBelt != 0, uint64(b[submitNdim]&^(takesWide|takesBelt))
	splits, name := uint64(le.Uint32(b[submitSplits:])), uint64(le.Uint32(b[submitNameLen:]))
	dimsEnd := submitDims + 8*ndim
	splitsEnd := dimsEnd + 4*splits
	if ndim > MaxDims || splitsEnd+name != uint64(len(b)) {
		return Malformed("submit of %d bytes with %d dimensions, %d splits and a name of %d bytes", len(b), ndim, splits, name)
	}
	kind := collective.Kind(b[submitKind] &^ takesSlot)
	slot := b[submitKind]&takesSlot != 0
	if slot && kind != collective.Allreduce || (wide || belt) && !slot {
		return Malformed("a slot for %s", kind)
	}
	*m = Submit{
		Call: Call{
			Handle:    le.Uint32(b[submitHandle:]),
			Kind:      kind,
			Type:      kernel.Type(b[submitDtype]),
			Op:        kernel.Op(b[submitOp] & (1<<codingBits - 1)),
			Coding:    kernel.Coding(b[submitOp] >> codingBits),
			Root:      int32(le.Uint32(b[submitRoot:])),
			Group:     le.Uint32(b[submitGroup:]),
			Pre:       math.Float64frombits(le.Uint64(b[submitPre:])),
			Post:      math.Float64frombits(le.Uint64(b[submitPost:])),
			In:        piece(b, submitInRegion, submitInOffset, submitInBytes),
			Out:       piece(b, submitOutRegion, submitOutOffset, submitOutBytes),
			TakesSlot: slot,
			TakesWide: wide,
			TakesBelt: belt,
		},
		Dims:   b[submitDims:dimsEnd],
		Splits: b[dimsEnd:splitsEnd],
		Name:   b[splitsEnd:],
	}
	return nil
}

func piece(b []byte, region, offset, bytes int) Piece {
	return Piece{le.Uint32(b[region:]), le.Uint64(b[offset:]), le.Uint64(b[bytes:])}
}

// Follows reports whether the operation waits for another one of its rank, which comes later.
func (m *Submit) Follows() bool {
	return m.Kind == collective.Allreduce && m.NumSplits() == 1 && uint32(m.Split(0)) == Follows
}

// NumDims returns the number of dimensions.
func (m *Submit) NumDims() int { return len(m.Dims) / 8 }

// Dim returns the length of a dimension.
func (m *Submit) Dim(i int) int64 { return int64(le.Uint64(m.Dims[8*i:])) }

// NumSplits returns the number of splits.
func (m *Submit) NumSplits() int { return len(m.Splits) / 4 }

// Split returns a split.
func (m *Submit) Split(i int) int32 { return int32(le.Uint32(m.Splits[4*i:])) }

package session

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"gorun/collective"
	"gorun/collective/kernel"
)

// Types of messages, as the rank protocol numbers them.
const (
	typeHello   = 1 // in refusals only: the message itself starts with magic
	typeAlloc   = 2
	typeSubmit  = 3
	typeRelease = 4
	typeFree    = 5
	typeBye     = 6
	typeEnv     = 7
	typeSlots   = 8  // both ways
	typeWake    = 9  // from the daemon
	typeTraffic = 10 // both ways
	typeShow    = 11 // from the daemon
	typeHide    = 12 // from the daemon
	typeKept    = 13
	typeBatch   = 14

	typeWelcome   = 65
	typeRegion    = 66
	typeFail      = 67
	typeComplete  = 68
	typeCompleted = 72
	typeGoodbye   = 69
	typeChanged   = 71
	typeGone      = 70
)

const (
	magic   = "GORUNRK1"
	version = 1

	noRegion   = math.MaxUint32
	takesSlot  = 0x80 // added to the kind of SUBMIT
	takesWide  = 0x80 // added to its number of dimensions
	codingBits = 4    // of its reduction, above which the coding is
	batchTaken = 4    // flag of WELCOME: BATCH is understood
	slotsThere = 2    // flag of WELCOME; 1 was that of slots to which ranks came without waiting there

	fdComes = 1         // flag of COMPLETE
	maxTook = 1<<31 - 1 // microseconds that its other bits can say

	maxMessage = 64 << 10 // from a rank
	maxName    = collective.MaxName
	maxDims    = 32
	maxText    = 8 << 10 // longer texts are cut
)

// Offsets in the messages of a rank. Little-endian, no padding.
const (
	offType = 0

	helloVersion = 8
	helloProcess = 12
	helloPID     = 16
	helloFlags   = 20
	helloToken   = 24
	helloZero    = 56
	helloLen     = 64

	allocRequest = 4
	allocBytes   = 8
	allocLen     = 16

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

	pairValue  = 4
	pairLen    = 8
	trafficLen = 16
	hideLen    = 12

	showPlace  = 4
	showNumber = 8
	showBytes  = 16
	showLen    = 24

	envText = 4
	maxEnv  = 4096
)

// Offsets in the messages of the daemon.
const (
	welcomeVersion    = 4
	welcomeEpoch      = 8
	welcomeRank       = 12
	welcomeSize       = 16
	welcomeLocalRank  = 20
	welcomeLocalSize  = 24
	welcomeCrossRank  = 28
	welcomeCrossSize  = 32
	welcomeFlags      = 36
	welcomeHosts      = 40
	welcomeJob        = 44
	welcomeLen        = 60
	regionRequest     = 4
	regionNumber      = 8
	regionBytes       = 16
	regionLen         = 24
	failNumber        = 4
	failWhat          = 8
	failCode          = 12
	failTextLen       = 16
	failText          = 20
	completeHandle    = 4
	completeCode      = 8
	completeRegion    = 12
	completeOffset    = 16
	completeBytes     = 24
	completeNdim      = 32
	completeRows      = 36
	completeTextLen   = 40
	completeFlags     = 44
	completeRegionLen = 48
	completeDims      = 56
	goneCode          = 4
	goneTextLen       = 8
	goneText          = 16
)

var le = binary.LittleEndian

var errMalformed = errors.New("malformed message")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errMalformed, fmt.Sprintf(format, args...))
}

// hello is the first message of a session.
type hello struct {
	version uint32
	process int
	pid     int
	token   [32]byte
}

func decodeHello(b []byte) (hello, error) {
	var h hello
	if len(b) != helloLen || string(b[:len(magic)]) != magic {
		return h, malformed("not a hello")
	}
	h.version = le.Uint32(b[helloVersion:])
	process := le.Uint32(b[helloProcess:])
	h.pid = int(le.Uint32(b[helloPID:]))
	copy(h.token[:], b[helloToken:])
	if process > math.MaxInt32 || le.Uint32(b[helloFlags:]) != 0 || !bytes.Equal(b[helloZero:helloLen], make([]byte, helloLen-helloZero)) {
		return h, malformed("hello with unknown fields")
	}
	h.process = int(process)
	return h, nil
}

// place is a piece of one of the rank's regions.
type place struct {
	region        uint32
	offset, bytes uint64
}

// submit is the wire form of an operation. dims, splits and name are views of the message.
type submit struct {
	handle    uint32
	kind      collective.Kind
	dtype     kernel.Type
	op        kernel.Op
	coding    kernel.Coding
	root      int32
	group     uint32
	pre, post float64
	in, out   place
	dims      []byte // 8 bytes each
	splits    []byte // 4 bytes each
	name      []byte
	slot      bool // the rank would take a slot for the next use of the name
	wide      bool // also a wide one
}

// decodeSubmit checks the shape of the message; what its fields mean is checked by whoever resolves them.
func decodeSubmit(b []byte, m *submit) error {
	if len(b) < submitDims {
		return malformed("submit of %d bytes", len(b))
	}
	wide := b[submitNdim]&takesWide != 0
	ndim, splits, name := uint64(b[submitNdim]&^takesWide), uint64(le.Uint32(b[submitSplits:])), uint64(le.Uint32(b[submitNameLen:]))
	dimsEnd := submitDims + 8*ndim
	splitsEnd := dimsEnd + 4*splits
	if ndim > maxDims || splitsEnd+name != uint64(len(b)) {
		return malformed("submit of %d bytes with %d dimensions, %d splits and a name of %d bytes", len(b), ndim, splits, name)
	}
	kind := collective.Kind(b[submitKind] &^ takesSlot)
	slot := b[submitKind]&takesSlot != 0
	if slot && kind != collective.Allreduce || wide && !slot {
		return malformed("a slot for %s", kind)
	}
	*m = submit{
		slot:   slot,
		wide:   wide,
		handle: le.Uint32(b[submitHandle:]),
		kind:   kind,
		dtype:  kernel.Type(b[submitDtype]),
		op:     kernel.Op(b[submitOp] & (1<<codingBits - 1)),
		coding: kernel.Coding(b[submitOp] >> codingBits),
		root:   int32(le.Uint32(b[submitRoot:])),
		group:  le.Uint32(b[submitGroup:]),
		pre:    math.Float64frombits(le.Uint64(b[submitPre:])),
		post:   math.Float64frombits(le.Uint64(b[submitPost:])),
		in:     place{le.Uint32(b[submitInRegion:]), le.Uint64(b[submitInOffset:]), le.Uint64(b[submitInBytes:])},
		out:    place{le.Uint32(b[submitOutRegion:]), le.Uint64(b[submitOutOffset:]), le.Uint64(b[submitOutBytes:])},
		dims:   b[submitDims:dimsEnd],
		splits: b[dimsEnd:splitsEnd],
		name:   b[splitsEnd:],
	}
	return nil
}

func decodeAlloc(b []byte) (request uint32, n uint64, err error) {
	if len(b) != allocLen {
		return 0, 0, malformed("alloc of %d bytes", len(b))
	}
	return le.Uint32(b[allocRequest:]), le.Uint64(b[allocBytes:]), nil
}

// decodePair reads the single value of RELEASE, FREE, BYE, SLOTS, TRAFFIC and KEPT.
func decodePair(b []byte) (uint32, error) {
	if len(b) != pairLen {
		return 0, malformed("message of type %d with %d bytes", le.Uint32(b), len(b))
	}
	return le.Uint32(b[pairValue:]), nil
}

// decodeEnv reads a variable as NAME=value.
func decodeEnv(b []byte) (name, value string, err error) {
	if len(b) > maxEnv || !utf8.Valid(b[envText:]) {
		return "", "", malformed("variable of %d bytes", len(b))
	}
	name, value, ok := strings.Cut(string(b[envText:]), "=")
	if !ok || name == "" || strings.ContainsRune(name+value, 0) {
		return "", "", malformed("not a variable")
	}
	return name, value, nil
}

func appendWelcome(b []byte, w World, p Place, slots bool, job string) []byte {
	m := extend(&b, welcomeLen)
	le.PutUint32(m[offType:], typeWelcome)
	le.PutUint32(m[welcomeVersion:], version)
	le.PutUint32(m[welcomeEpoch:], w.Epoch)
	le.PutUint32(m[welcomeRank:], uint32(p.Rank))
	le.PutUint32(m[welcomeSize:], uint32(w.Size))
	le.PutUint32(m[welcomeLocalRank:], uint32(p.LocalRank))
	le.PutUint32(m[welcomeLocalSize:], uint32(len(w.Places)))
	le.PutUint32(m[welcomeCrossRank:], uint32(p.CrossRank))
	le.PutUint32(m[welcomeCrossSize:], uint32(p.CrossSize))
	flags := uint32(batchTaken)
	if slots {
		flags |= slotsThere
	}
	le.PutUint32(m[welcomeFlags:], flags)
	le.PutUint32(m[welcomeHosts:], uint32(w.Hosts))
	clear(m[welcomeJob:])
	copy(m[welcomeJob:], job)
	return b
}

func appendRegion(b []byte, request, number uint32, size int64) []byte {
	m := extend(&b, regionLen)
	le.PutUint32(m[offType:], typeRegion)
	le.PutUint32(m[regionRequest:], request)
	le.PutUint32(m[regionNumber:], number)
	le.PutUint32(m[regionNumber+4:], 0)
	le.PutUint64(m[regionBytes:], uint64(size))
	return b
}

func appendSlots(b []byte, size int64) []byte {
	return le.AppendUint64(appendPair(b, typeSlots, 0), uint64(size))
}

// appendShow encodes SHOW: a region of another rank, whose descriptor goes along.
func appendShow(b []byte, place int, number uint32, size int64) []byte {
	b = le.AppendUint32(appendPair(b, typeShow, uint32(place)), number)
	return le.AppendUint64(le.AppendUint32(b, 0), uint64(size))
}

// appendHide encodes HIDE: another rank has freed a region.
func appendHide(b []byte, place int, number uint32) []byte {
	return le.AppendUint32(appendPair(b, typeHide, uint32(place)), number)
}

func appendTraffic(b []byte, sent uint64) []byte {
	return le.AppendUint64(appendPair(b, typeTraffic, 0), sent)
}

func appendFail(b []byte, number, what uint32, code collective.Code, text string) []byte {
	text = cut(text)
	m := extend(&b, failText)
	le.PutUint32(m[offType:], typeFail)
	le.PutUint32(m[failNumber:], number)
	le.PutUint32(m[failWhat:], what)
	le.PutUint32(m[failCode:], uint32(code))
	le.PutUint32(m[failTextLen:], uint32(len(text)))
	return append(b, text...)
}

// completion is the wire form of a result.
type completion struct {
	handle        uint32
	code          collective.Code
	region        uint32
	offset, bytes int
	regionBytes   int64
	fd            bool // the region's descriptor comes along
	dims, rows    []int
	text          string
	took          time.Duration
}

func (c *completion) flags() uint32 {
	flags := uint32(min(max(c.took.Microseconds(), 0), maxTook)) << 1
	if c.fd {
		flags |= fdComes
	}
	return flags
}

// plain reports whether it is a success that says nothing else.
func (c *completion) plain() bool {
	return c.code == 0 && c.region == noRegion && c.offset == 0 && len(c.dims) == 0 && len(c.rows) == 0
}

// appendCompleted begins a COMPLETED, or adds a plain completion to one.
func appendCompleted(b []byte, c *completion) []byte {
	if len(b) == 0 {
		b = appendPair(b, typeCompleted, 0)
	}
	le.PutUint32(b[pairValue:], le.Uint32(b[pairValue:])+1)
	return le.AppendUint32(le.AppendUint32(b, c.handle), c.flags())
}

func appendComplete(b []byte, c *completion) []byte {
	text := cut(c.text)
	m := extend(&b, completeDims)
	le.PutUint32(m[offType:], typeComplete)
	le.PutUint32(m[completeHandle:], c.handle)
	le.PutUint32(m[completeCode:], uint32(c.code))
	le.PutUint32(m[completeRegion:], c.region)
	le.PutUint64(m[completeOffset:], uint64(c.offset))
	le.PutUint64(m[completeBytes:], uint64(c.bytes))
	le.PutUint32(m[completeNdim:], uint32(len(c.dims)))
	le.PutUint32(m[completeRows:], uint32(len(c.rows)))
	le.PutUint32(m[completeTextLen:], uint32(len(text)))
	le.PutUint32(m[completeFlags:], c.flags())
	le.PutUint64(m[completeRegionLen:], uint64(c.regionBytes))
	for _, n := range c.dims {
		b = le.AppendUint64(b, uint64(n))
	}
	for _, n := range c.rows {
		b = le.AppendUint64(b, uint64(n))
	}
	return append(b, text...)
}

func appendChanged(b []byte, added, removed bool, stamp int64) []byte {
	flags := uint32(0)
	if removed {
		flags |= 1
	}
	if added {
		flags |= 2
	}
	return le.AppendUint64(le.AppendUint32(le.AppendUint32(b, typeChanged), flags), uint64(stamp))
}

func appendGoodbye(b []byte) []byte {
	return le.AppendUint32(le.AppendUint32(b, typeGoodbye), 0)
}

func appendGone(b []byte, code collective.Code, text string) []byte {
	text = cut(text)
	m := extend(&b, goneText)
	le.PutUint32(m[offType:], typeGone)
	le.PutUint32(m[goneCode:], uint32(code))
	le.PutUint32(m[goneTextLen:], uint32(len(text)))
	le.PutUint32(m[goneTextLen+4:], 0)
	return append(b, text...)
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

package codec

import (
	"bytes"
	"math"
	"time"

	"gorun/collective"
)

// Offsets in COMPLETE. Little-endian, no padding.
const (
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
)

// Layouts of the other messages of the daemon.
type (
	welcome struct {
		Type, Version, Epoch                                   uint32
		Rank, Size, LocalRank, LocalSize, CrossRank, CrossSize int32
		Flags                                                  uint32
		Hosts                                                  int32
		Job                                                    [16]byte
	}
	region struct { // REGION and SHOW
		Type, Request, Number, _ uint32
		Bytes                    uint64
	}
	hide   struct{ Type, Place, Number uint32 }
	memory struct { // the answers to SLOTS and MAILBOX
		Type, _ uint32
		Bytes   uint64
	}
	traffic struct {
		Type, _        uint32
		Sent, OverRDMA uint64
	}
	changed struct {
		Type, Flags uint32
		Stamp       int64
	}
	fail struct{ Type, Number, What, Code, TextLen uint32 } // and the text
	gone struct{ Type, Code, TextLen, _ uint32 }            // and the text
)

// Welcome is the world as a rank learns it.
type Welcome struct {
	Epoch                                   uint32
	Rank, Size, LocalRank, LocalSize, Hosts int
	CrossRank, CrossSize                    int
	Slots                                   bool   // the ranks of the world can have slots
	Belt                                    bool   // and there is a belt: set by DecodeWelcome
	Job                                     string // 16 bytes of it are sent
}

// AppendWelcome encodes WELCOME.
func AppendWelcome(b []byte, w *Welcome) []byte {
	m := welcome{Type: TypeWelcome, Version: Version, Epoch: w.Epoch, Rank: int32(w.Rank), Size: int32(w.Size),
		LocalRank: int32(w.LocalRank), LocalSize: int32(w.LocalSize), CrossRank: int32(w.CrossRank), CrossSize: int32(w.CrossSize),
		Flags: batchTaken | mailTaken, Hosts: int32(w.Hosts)}
	if w.Slots {
		m.Flags |= slotsThere | beltThere
	}
	copy(m.Job[:], w.Job)
	return put(b, m)
}

// DecodeWelcome decodes WELCOME.
func DecodeWelcome(b []byte) (Welcome, error) {
	var m welcome
	if !get(b, &m) || m.Version != Version {
		return Welcome{}, Malformed("welcome of %d bytes", len(b))
	}
	w := Welcome{Epoch: m.Epoch, Rank: int(m.Rank), Size: int(m.Size), LocalRank: int(m.LocalRank), LocalSize: int(m.LocalSize),
		Hosts: int(m.Hosts), CrossRank: int(m.CrossRank), CrossSize: int(m.CrossSize),
		Slots: m.Flags&slotsThere != 0, Belt: m.Flags&beltThere != 0, Job: string(bytes.TrimRight(m.Job[:], "\x00"))}
	if w.Size < 1 || w.Rank < 0 || w.Rank >= w.Size {
		return w, Malformed("welcome to rank %d of %d", w.Rank, w.Size)
	}
	return w, nil
}

// AppendRegion encodes REGION. The region's descriptor goes along with it.
func AppendRegion(b []byte, request, number uint32, size int64) []byte {
	return put(b, region{Type: TypeRegion, Request: request, Number: number, Bytes: uint64(size)})
}

// DecodeRegion decodes REGION.
func DecodeRegion(b []byte) (request, number uint32, size int, err error) {
	var m region
	if !get(b, &m) || m.Bytes > math.MaxInt {
		return 0, 0, 0, Malformed("region of %d bytes", len(b))
	}
	return m.Request, m.Number, int(m.Bytes), nil
}

// AppendFail encodes FAIL: the number and type of the message that is refused, and why.
func AppendFail(b []byte, number, what uint32, code collective.Code, text string) []byte {
	text = cut(text)
	return append(put(b, fail{TypeFail, number, what, uint32(code), uint32(len(text))}), text...)
}

// DecodeFail decodes FAIL.
func DecodeFail(b []byte) (number, what uint32, _ *collective.Error, err error) {
	var m fail
	text, ok := getText(b, &m)
	if !ok || uint32(len(text)) != m.TextLen {
		return 0, 0, nil, Malformed("refusal of %d bytes", len(b))
	}
	return m.Number, m.What, &collective.Error{Code: collective.Code(m.Code), Text: string(text)}, nil
}

// Completion is the end of an operation. Without a region, Offset is where the slot for the next use of the name is.
type Completion struct {
	Handle        uint32
	Code          collective.Code
	Region        uint32
	Offset, Bytes int
	RegionBytes   int64
	FD            bool // the region's descriptor comes along
	Dims, Rows    []int
	Text          string
	Took          time.Duration
}

func (c *Completion) flags() uint32 {
	flags := uint32(min(max(c.Took.Microseconds(), 0), maxTook)) << 1
	if c.FD {
		flags |= fdComes
	}
	return flags
}

// Plain reports whether COMPLETED has room for all of the completion: it is a success without result, slot and text.
func (c *Completion) Plain() bool {
	return c.Code == 0 && c.Region == NoRegion && c.Offset == 0 && len(c.Dims) == 0 && len(c.Rows) == 0
}

// AppendCompleted encodes COMPLETED with a plain completion, or adds one to a COMPLETED that b has already.
func AppendCompleted(b []byte, c *Completion) []byte {
	if len(b) == 0 {
		b = AppendPair(b, TypeCompleted, 0)
	}
	le.PutUint32(b[pairValue:], le.Uint32(b[pairValue:])+1)
	return le.AppendUint32(le.AppendUint32(b, c.Handle), c.flags())
}

// AppendComplete encodes COMPLETE.
func AppendComplete(b []byte, c *Completion) []byte {
	text := cut(c.Text)
	m := extend(&b, completeDims)
	le.PutUint32(m[offType:], TypeComplete)
	le.PutUint32(m[completeHandle:], c.Handle)
	le.PutUint32(m[completeCode:], uint32(c.Code))
	le.PutUint32(m[completeRegion:], c.Region)
	le.PutUint64(m[completeOffset:], uint64(c.Offset))
	le.PutUint64(m[completeBytes:], uint64(c.Bytes))
	le.PutUint32(m[completeNdim:], uint32(len(c.Dims)))
	le.PutUint32(m[completeRows:], uint32(len(c.Rows)))
	le.PutUint32(m[completeTextLen:], uint32(len(text)))
	le.PutUint32(m[completeFlags:], c.flags())
	le.PutUint64(m[completeRegionLen:], uint64(c.RegionBytes))
	for _, n := range c.Dims {
		b = le.AppendUint64(b, uint64(n))
	}
	for _, n := range c.Rows {
		b = le.AppendUint64(b, uint64(n))
	}
	return append(b, text...)
}

// DecodeComplete decodes COMPLETE into c. It makes no garbage for a completion without dimensions, rows and text.
func DecodeComplete(b []byte, c *Completion) error {
	if len(b) < completeDims {
		return Malformed("completion of %d bytes", len(b))
	}
	ndim, rows := uint64(le.Uint32(b[completeNdim:])), uint64(le.Uint32(b[completeRows:]))
	text := uint64(le.Uint32(b[completeTextLen:]))
	if completeDims+8*(ndim+rows)+text != uint64(len(b)) {
		return Malformed("completion of %d bytes with %d dimensions, %d rows and a text of %d bytes", len(b), ndim, rows, text)
	}
	offset, size, region := le.Uint64(b[completeOffset:]), le.Uint64(b[completeBytes:]), le.Uint64(b[completeRegionLen:])
	inRegion := le.Uint32(b[completeRegion:]) != NoRegion // else the offset of a slot
	if region > math.MaxInt || offset > math.MaxInt || inRegion && (offset > region || size > region-offset) {
		return Malformed("completion with %d bytes at %d of a region of %d bytes", size, offset, region)
	}
	flags := le.Uint32(b[completeFlags:])
	*c = Completion{
		Handle:      le.Uint32(b[completeHandle:]),
		Code:        collective.Code(le.Uint32(b[completeCode:])),
		Region:      le.Uint32(b[completeRegion:]),
		Offset:      int(offset),
		Bytes:       int(size),
		RegionBytes: int64(region),
		FD:          flags&fdComes != 0,
		Took:        time.Duration(flags>>1) * time.Microsecond,
	}
	b = b[completeDims:]
	c.Dims, b = ints(b, int(ndim))
	c.Rows, b = ints(b, int(rows))
	c.Text = string(b)
	return nil
}

// AppendSlots encodes the answer to SLOTS. The descriptor of the memory goes along with it.
func AppendSlots(b []byte, size int64) []byte {
	return put(b, memory{Type: TypeSlots, Bytes: uint64(size)})
}

// AppendMailbox encodes the answer to MAILBOX. The descriptor of the memory goes along with it, unless there is none and size is 0.
func AppendMailbox(b []byte, size int64) []byte {
	return put(b, memory{Type: TypeMailbox, Bytes: uint64(size)})
}

// DecodeSlots decodes the answer to SLOTS.
func DecodeSlots(b []byte) (size int, err error) {
	var m memory
	if !get(b, &m) || m.Bytes < MaxSlotRanks*SlotLine || m.Bytes > SlotsBytes+MaxSlotRanks*BeltArea+2<<20 { // rounded up
		return 0, Malformed("slots in %d bytes of memory, by %d bytes", m.Bytes, len(b))
	}
	return int(m.Bytes), nil
}

// AppendShow encodes SHOW: a region of another rank, whose descriptor goes along.
func AppendShow(b []byte, place int, number uint32, size int64) []byte {
	return put(b, region{Type: TypeShow, Request: uint32(place), Number: number, Bytes: uint64(size)})
}

// DecodeShow decodes SHOW.
func DecodeShow(b []byte) (place int, number uint32, size int, err error) {
	of, number, size, err := DecodeRegion(b)
	if err != nil || of >= MaxSlotRanks {
		return 0, 0, 0, Malformed("memory of another rank, of %d bytes", len(b))
	}
	return int(of), number, size, nil
}

// AppendHide encodes HIDE: another rank has freed a region.
func AppendHide(b []byte, place int, number uint32) []byte {
	return put(b, hide{TypeHide, uint32(place), number})
}

// DecodeHide decodes HIDE.
func DecodeHide(b []byte) (place int, number uint32, err error) {
	var m hide
	if !get(b, &m) || m.Place >= MaxSlotRanks {
		return 0, 0, Malformed("end of memory of another rank, of %d bytes", len(b))
	}
	return int(m.Place), m.Number, nil
}

// AppendTraffic encodes the answer to TRAFFIC: how many bytes the host has sent to others, and how many of them over RDMA.
func AppendTraffic(b []byte, sent, overRDMA uint64) []byte {
	return put(b, traffic{Type: TypeTraffic, Sent: sent, OverRDMA: overRDMA})
}

// DecodeTraffic decodes the answer to TRAFFIC.
func DecodeTraffic(b []byte) (sent, overRDMA uint64, err error) {
	var m traffic
	if !get(b, &m) {
		return 0, 0, Malformed("traffic of %d bytes", len(b))
	}
	return m.Sent, m.OverRDMA, nil
}

// AppendChanged encodes CHANGED: hosts have come or gone.
func AppendChanged(b []byte, added, removed bool, stamp int64) []byte {
	m := changed{Type: TypeChanged, Stamp: stamp}
	if removed {
		m.Flags |= hostsGo
	}
	if added {
		m.Flags |= hostsCome
	}
	return put(b, m)
}

// AppendGone encodes GONE: why the world, or the session, has ended.
func AppendGone(b []byte, code collective.Code, text string) []byte {
	text = cut(text)
	return append(put(b, gone{Type: TypeGone, Code: uint32(code), TextLen: uint32(len(text))}), text...)
}

// DecodeGone decodes GONE.
func DecodeGone(b []byte) (*collective.Error, error) {
	var m gone
	text, ok := getText(b, &m)
	if !ok || uint32(len(text)) != m.TextLen {
		return nil, Malformed("end of world of %d bytes", len(b))
	}
	return &collective.Error{Code: collective.Code(m.Code), Text: string(text)}, nil
}

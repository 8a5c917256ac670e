package codec

import (
	"bytes"
	"math"
	"time"

	"gorun/collective"
)

// Offsets in the messages of the daemon. Little-endian, no padding.
const (
	welcomeVersion   = 4
	welcomeEpoch     = 8
	welcomeRank      = 12
	welcomeSize      = 16
	welcomeLocalRank = 20
	welcomeLocalSize = 24
	welcomeCrossRank = 28
	welcomeCrossSize = 32
	welcomeFlags     = 36
	welcomeHosts     = 40
	welcomeJob       = 44
	welcomeLen       = 60

	regionRequest = 4
	regionNumber  = 8
	regionBytes   = 16
	regionLen     = 24

	failNumber  = 4
	failWhat    = 8
	failCode    = 12
	failTextLen = 16
	failText    = 20

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

	slotsBytes = 8
	slotsLen   = 16

	showPlace  = 4
	showNumber = 8
	showBytes  = 16
	showLen    = 24
	hideLen    = 12

	trafficSent = 8
	trafficRDMA = 16
	trafficLen  = 24

	goneCode    = 4
	goneTextLen = 8
	goneText    = 16
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
	m := extend(&b, welcomeLen)
	le.PutUint32(m[offType:], TypeWelcome)
	le.PutUint32(m[welcomeVersion:], Version)
	le.PutUint32(m[welcomeEpoch:], w.Epoch)
	le.PutUint32(m[welcomeRank:], uint32(w.Rank))
	le.PutUint32(m[welcomeSize:], uint32(w.Size))
	le.PutUint32(m[welcomeLocalRank:], uint32(w.LocalRank))
	le.PutUint32(m[welcomeLocalSize:], uint32(w.LocalSize))
	le.PutUint32(m[welcomeCrossRank:], uint32(w.CrossRank))
	le.PutUint32(m[welcomeCrossSize:], uint32(w.CrossSize))
	flags := uint32(batchTaken | mailTaken)
	if w.Slots {
		flags |= slotsThere | beltThere
	}
	le.PutUint32(m[welcomeFlags:], flags)
	le.PutUint32(m[welcomeHosts:], uint32(w.Hosts))
	clear(m[welcomeJob:])
	copy(m[welcomeJob:], w.Job)
	return b
}

// DecodeWelcome decodes WELCOME.
func DecodeWelcome(b []byte) (Welcome, error) {
	if len(b) != welcomeLen || le.Uint32(b[welcomeVersion:]) != Version {
		return Welcome{}, Malformed("welcome of %d bytes", len(b))
	}
	field := func(at int) int { return int(int32(le.Uint32(b[at:]))) }
	w := Welcome{Epoch: le.Uint32(b[welcomeEpoch:]), Rank: field(welcomeRank), Size: field(welcomeSize),
		LocalRank: field(welcomeLocalRank), LocalSize: field(welcomeLocalSize), Hosts: field(welcomeHosts),
		CrossRank: field(welcomeCrossRank), CrossSize: field(welcomeCrossSize),
		Slots: le.Uint32(b[welcomeFlags:])&slotsThere != 0, Belt: le.Uint32(b[welcomeFlags:])&beltThere != 0,
		Job: string(bytes.TrimRight(b[welcomeJob:], "\x00"))}
	if w.Size < 1 || w.Rank < 0 || w.Rank >= w.Size {
		return w, Malformed("welcome to rank %d of %d", w.Rank, w.Size)
	}
	return w, nil
}

// AppendRegion encodes REGION. The region's descriptor goes along with it.
func AppendRegion(b []byte, request, number uint32, size int64) []byte {
	m := extend(&b, regionLen)
	le.PutUint32(m[offType:], TypeRegion)
	le.PutUint32(m[regionRequest:], request)
	le.PutUint32(m[regionNumber:], number)
	le.PutUint32(m[regionNumber+4:], 0)
	le.PutUint64(m[regionBytes:], uint64(size))
	return b
}

// DecodeRegion decodes REGION.
func DecodeRegion(b []byte) (request, number uint32, size int, err error) {
	if len(b) != regionLen || le.Uint64(b[regionBytes:]) > math.MaxInt {
		return 0, 0, 0, Malformed("region of %d bytes", len(b))
	}
	return le.Uint32(b[regionRequest:]), le.Uint32(b[regionNumber:]), int(le.Uint64(b[regionBytes:])), nil
}

// AppendFail encodes FAIL: the number and type of the message that is refused, and why.
func AppendFail(b []byte, number, what uint32, code collective.Code, text string) []byte {
	text = cut(text)
	m := extend(&b, failText)
	le.PutUint32(m[offType:], TypeFail)
	le.PutUint32(m[failNumber:], number)
	le.PutUint32(m[failWhat:], what)
	le.PutUint32(m[failCode:], uint32(code))
	le.PutUint32(m[failTextLen:], uint32(len(text)))
	return append(b, text...)
}

// DecodeFail decodes FAIL.
func DecodeFail(b []byte) (number, what uint32, _ *collective.Error, err error) {
	if len(b) < failText || uint64(len(b)) != failText+uint64(le.Uint32(b[failTextLen:])) {
		return 0, 0, nil, Malformed("refusal of %d bytes", len(b))
	}
	return le.Uint32(b[failNumber:]), le.Uint32(b[failWhat:]),
		&collective.Error{Code: collective.Code(le.Uint32(b[failCode:])), Text: string(b[failText:])}, nil
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
	return le.AppendUint64(AppendPair(b, TypeSlots, 0), uint64(size))
}

// AppendMailbox encodes the answer to MAILBOX. The descriptor of the memory goes along with it, unless there is none and size is 0.
func AppendMailbox(b []byte, size int64) []byte {
	return le.AppendUint64(AppendPair(b, TypeMailbox, 0), uint64(size))
}

// DecodeSlots decodes the answer to SLOTS.
func DecodeSlots(b []byte) (size int, err error) {
	if len(b) != slotsLen {
		return 0, Malformed("slots of %d bytes", len(b))
	}
	n := le.Uint64(b[slotsBytes:])
	if n < MaxSlotRanks*SlotLine || n > SlotsBytes+MaxSlotRanks*BeltArea+2<<20 { // rounded up
		return 0, Malformed("slots in %d bytes of memory", n)
	}
	return int(n), nil
}

// AppendShow encodes SHOW: a region of another rank, whose descriptor goes along.
func AppendShow(b []byte, place int, number uint32, size int64) []byte {
	b = le.AppendUint32(AppendPair(b, TypeShow, uint32(place)), number)
	return le.AppendUint64(le.AppendUint32(b, 0), uint64(size))
}

// DecodeShow decodes SHOW.
func DecodeShow(b []byte) (place int, number uint32, size int, err error) {
	if len(b) != showLen || le.Uint32(b[showPlace:]) >= MaxSlotRanks || le.Uint64(b[showBytes:]) > math.MaxInt {
		return 0, 0, 0, Malformed("memory of another rank, of %d bytes", len(b))
	}
	return int(le.Uint32(b[showPlace:])), le.Uint32(b[showNumber:]), int(le.Uint64(b[showBytes:])), nil
}

// AppendHide encodes HIDE: another rank has freed a region.
func AppendHide(b []byte, place int, number uint32) []byte {
	return le.AppendUint32(AppendPair(b, TypeHide, uint32(place)), number)
}

// DecodeHide decodes HIDE.
func DecodeHide(b []byte) (place int, number uint32, err error) {
	if len(b) != hideLen || le.Uint32(b[showPlace:]) >= MaxSlotRanks {
		return 0, 0, Malformed("end of memory of another rank, of %d bytes", len(b))
	}
	return int(le.Uint32(b[showPlace:])), le.Uint32(b[showNumber:]), nil
}

// AppendTraffic encodes the answer to TRAFFIC: how many bytes the host has sent to others, and how many of them over RDMA.
func AppendTraffic(b []byte, sent, overRDMA uint64) []byte {
	return le.AppendUint64(le.AppendUint64(AppendPair(b, TypeTraffic, 0), sent), overRDMA)
}

// DecodeTraffic decodes the answer to TRAFFIC.
func DecodeTraffic(b []byte) (sent, overRDMA uint64, err error) {
	if len(b) != trafficLen {
		return 0, 0, Malformed("traffic of %d bytes", len(b))
	}
	return le.Uint64(b[trafficSent:]), le.Uint64(b[trafficRDMA:]), nil
}

// AppendChanged encodes CHANGED: hosts have come or gone.
func AppendChanged(b []byte, added, removed bool, stamp int64) []byte {
	flags := uint32(0)
	if removed {
		flags |= hostsGo
	}
	if added {
		flags |= hostsCome
	}
	return le.AppendUint64(le.AppendUint32(le.AppendUint32(b, TypeChanged), flags), uint64(stamp))
}

// AppendGone encodes GONE: why the world, or the session, has ended.
func AppendGone(b []byte, code collective.Code, text string) []byte {
	text = cut(text)
	m := extend(&b, goneText)
	le.PutUint32(m[offType:], TypeGone)
	le.PutUint32(m[goneCode:], uint32(code))
	le.PutUint32(m[goneTextLen:], uint32(len(text)))
	le.PutUint32(m[goneTextLen+4:], 0)
	return append(b, text...)
}

// DecodeGone decodes GONE.
func DecodeGone(b []byte) (*collective.Error, error) {
	if len(b) < goneText || uint64(len(b)) != goneText+uint64(le.Uint32(b[goneTextLen:])) {
		return nil, Malformed("end of world of %d bytes", len(b))
	}
	return &collective.Error{Code: collective.Code(le.Uint32(b[goneCode:])), Text: string(b[goneText:])}, nil
}

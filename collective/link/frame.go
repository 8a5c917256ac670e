package link

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A frame is a header and its payload. The header is a record of 52 bytes, little-endian:
//
//	 0  u8   kind
//	 1  u8   flags
//	 2  u16  step
//	 4  u32  epoch
//	 8  u32  gen
//	12  u32  length of the payload
//	16  u64  op
//	24  u64  offset
//	32  u64  seq: number of the segment
//	40  u64  ack: the sender of the frame has received all segments below
//	48  u32  sack: bit i says that it also has ack+1+i
//
// A payload that is encrypted follows in records of at most recordSize bytes. One that is not follows as it is; if it is
// flagged as checked, its tag stands before it.
//
// An acknowledgement that travels alone has kind 0x80 and no number; its payload is the map of received
// segments from ack on (see receiveWindow.appendMap) when sack is too short for it.
//
// A tag that does not fit ends the stream. The stream that replaces it carries again what was not acknowledged: see
// damage.go.
const (
	offKind   = 0
	offFlags  = 1
	offStep   = 2
	offEpoch  = 4
	offGen    = 8
	offLength = 12
	offOp     = 16
	offOffset = 24
	offSeq    = 32
	offAck    = 40
	offSack   = 48

	headerSize = 52
	headSize   = headerSize + tagSize // on the wire

	kindAck SegmentKind = 0x80
)

var (
	errFrame   = errors.New("frame is malformed")
	errDamaged = errors.New("data is damaged or forged")
)

// frame is a decoded header.
type frame struct {
	Header
	seq  uint64
	ack  uint64
	sack uint32
}

func (f *frame) encode(b *[headerSize]byte) {
	le := binary.LittleEndian
	b[offKind], b[offFlags] = byte(f.Kind), f.Flags
	le.PutUint16(b[offStep:], f.Step)
	le.PutUint32(b[offEpoch:], f.Epoch)
	le.PutUint32(b[offGen:], f.Gen)
	le.PutUint32(b[offLength:], f.Length)
	le.PutUint64(b[offOp:], f.Op)
	le.PutUint64(b[offOffset:], f.Offset)
	le.PutUint64(b[offSeq:], f.seq)
	le.PutUint64(b[offAck:], f.ack)
	le.PutUint32(b[offSack:], f.sack)
}

// decode checks everything that can be checked without knowing the link.
func (f *frame) decode(b *[headerSize]byte) error {
	le := binary.LittleEndian
	*f = frame{
		Header: Header{
			Kind:   SegmentKind(b[offKind]),
			Flags:  b[offFlags],
			Step:   le.Uint16(b[offStep:]),
			Epoch:  le.Uint32(b[offEpoch:]),
			Gen:    le.Uint32(b[offGen:]),
			Length: le.Uint32(b[offLength:]),
			Op:     le.Uint64(b[offOp:]),
			Offset: le.Uint64(b[offOffset:]),
		},
		seq:  le.Uint64(b[offSeq:]),
		ack:  le.Uint64(b[offAck:]),
		sack: le.Uint32(b[offSack:]),
	}
	switch limit := uint32(MaxPayload); {
	case f.Kind == kindAck:
		limit = mapBytes
		fallthrough
	case f.Kind == Data || f.Kind == Control:
		if f.Length > limit {
			return fmt.Errorf("%w: kind %d with %d bytes", errFrame, f.Kind, f.Length)
		}
		if f.mustCheck() && f.Flags&flagChecked == 0 {
			return fmt.Errorf("%w: a payload of kind %d is not authenticated", errFrame, f.Kind)
		}
	default:
		return fmt.Errorf("%w: kind %d", errFrame, f.Kind)
	}
	return nil
}

// mustCheck reports whether the payload is authenticated whatever Config.Check says.
func (f *frame) mustCheck() bool {
	return f.Length > 0 && (f.Kind != Data || f.Flags&FlagCheck != 0 || f.Length <= alwaysChecked)
}

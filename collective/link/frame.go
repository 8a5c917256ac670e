package link

import (
	"encoding/binary"
	"errors"
	"fmt"

	"gorun/collective/crc32c"
)

// A frame is a header of 64 bytes, little-endian, and its payload:
//
//	 0  u32  magic
//	 4  u8   kind
//	 5  u8   flags
//	 6  u16  step
//	 8  u32  epoch
//	12  u32  gen
//	16  u64  op
//	24  u64  offset
//	32  u32  length of the payload
//	36  u32  crc32c of the payload, if flagged
//	40  u64  seq: number of the segment
//	48  u64  ack: the sender of the frame has received all segments below
//	56  u32  sack: bit i says that it also has ack+1+i
//	60  u32  crc32c of the 60 bytes before
//
// An acknowledgement that travels alone has kind 0x80 and no number; its payload is the map of received
// segments from ack on (see receiveWindow.appendMap) when sack is too short for it.
//
// Both checksums find what TCP's own lets through, such as two 16-bit words that have changed places in a NIC. A frame
// that fails one ends its stream, and the stream that replaces it carries again what was not acknowledged: see
// damage.go.
const (
	offMagic  = 0
	offKind   = 4
	offFlags  = 5
	offStep   = 6
	offEpoch  = 8
	offGen    = 12
	offOp     = 16
	offOffset = 24
	offLength = 32
	offCRC    = 36
	offSeq    = 40
	offAck    = 48
	offSack   = 56
	offCheck  = 60

	headerSize = 64
	frameMagic = 0x316e7267 // "grn1"

	kindAck SegmentKind = 0x80
)

var (
	errFrame    = errors.New("frame is malformed")
	errChecksum = errors.New("frame is damaged")
)

// frame is a decoded header.
type frame struct {
	Header
	crc  uint32
	seq  uint64
	ack  uint64
	sack uint32
}

func (f *frame) encode(b *[headerSize]byte) {
	le := binary.LittleEndian
	le.PutUint32(b[offMagic:], frameMagic)
	b[offKind], b[offFlags] = byte(f.Kind), f.Flags
	le.PutUint16(b[offStep:], f.Step)
	le.PutUint32(b[offEpoch:], f.Epoch)
	le.PutUint32(b[offGen:], f.Gen)
	le.PutUint64(b[offOp:], f.Op)
	le.PutUint64(b[offOffset:], f.Offset)
	le.PutUint32(b[offLength:], f.Length)
	le.PutUint32(b[offCRC:], f.crc)
	le.PutUint64(b[offSeq:], f.seq)
	le.PutUint64(b[offAck:], f.ack)
	le.PutUint32(b[offSack:], f.sack)
	le.PutUint32(b[offCheck:], crc32c.Sum(b[:offCheck]))
}

// decode checks everything that can be checked without knowing the link.
func (f *frame) decode(b *[headerSize]byte) error {
	le := binary.LittleEndian
	if le.Uint32(b[offCheck:]) != crc32c.Sum(b[:offCheck]) {
		return fmt.Errorf("%w: header", errChecksum)
	}
	if le.Uint32(b[offMagic:]) != frameMagic {
		return fmt.Errorf("%w: magic %#x", errFrame, le.Uint32(b[offMagic:]))
	}
	*f = frame{
		Header: Header{
			Kind:   SegmentKind(b[offKind]),
			Flags:  b[offFlags],
			Step:   le.Uint16(b[offStep:]),
			Epoch:  le.Uint32(b[offEpoch:]),
			Gen:    le.Uint32(b[offGen:]),
			Op:     le.Uint64(b[offOp:]),
			Offset: le.Uint64(b[offOffset:]),
			Length: le.Uint32(b[offLength:]),
		},
		crc:  le.Uint32(b[offCRC:]),
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
	default:
		return fmt.Errorf("%w: kind %d", errFrame, f.Kind)
	}
	return nil
}

// check compares the payload's checksum with the one that the frame carries, if it does.
func (f *frame) check(sum uint32) error {
	if f.Flags&flagChecksum != 0 && sum != f.crc {
		return fmt.Errorf("%w: payload", errChecksum)
	}
	return nil
}

package link

import "time"

// SegmentKind is the kind of a segment. Kinds from 0x80 are the link's own and never reach a Handler.
type SegmentKind uint8

// Kinds of segments.
const (
	Data    SegmentKind = 1 // bytes of a tensor, placed by the Handler
	Control SegmentKind = 2 // a message between engines, complete when it is sent
)

// MaxPayload bounds the payload of one segment; a longer one on the wire breaks the stream.
const MaxPayload = 4 << 20

// CopyLimit is the longest payload that Send copies, so that the owner's memory is free at once.
const CopyLimit = 16 << 10

// Flags of a segment. Flags from 0x80 are the link's own.
const (
	// FlagAckNow requests an acknowledgement at once, because the owner waits for it.
	FlagAckNow uint8 = 1 << 0

	// FlagCheck has the payload authenticated whatever its length and Config.Check: a rank may execute what it says.
	FlagCheck uint8 = 1 << 1

	flagChecked uint8 = 1 << 7 // the payload is authenticated

	// alwaysChecked is the longest payload whose tag has no measurable cost.
	alwaysChecked = CopyLimit
)

// Header describes a segment to the receiver before the payload is read, so that the payload can be read straight into
// its destination.
type Header struct {
	Kind   SegmentKind
	Flags  uint8
	Step   uint16 // step of the op's schedule
	Epoch  uint32 // world the segment belongs to; the Handler refuses any other
	Op     uint64 // hash of the op's group and name
	Gen    uint32 // how often that name was used before
	Length uint32 // bytes of payload; set by Send
	Offset uint64 // first byte in the op's buffer
}

// Segment is the unit of transmission. The link keeps it, and reads Payload again if a stream breaks, until
// Owner.Acked: neither may be changed before that.
//
// A payload of at most CopyLimit bytes is copied by Send: it must be complete then, Prepare is not called for it, and
// its memory (not the Segment) is free when Send returns. Acked is called all the same.
//
// A longer payload may be overwritten before Acked only if the new content proves that the peer has the old one (in a
// ring, the final chunk proves that the partial was consumed): the link repeats only what the peer's handshake reports
// missing.
type Segment struct {
	Header
	Payload []byte
	Owner   Owner // may be nil

	state segmentState
}

// segmentState is the link's own part of a Segment, guarded by the link's lock.
type segmentState struct {
	next     *Segment // in a queue, or in a list of acknowledged segments
	wire     []byte   // what is sent: Payload or its copy
	copy     *copied
	seq      uint64
	stream   int           // index of the stream that carried it last
	at       time.Duration // when the stream took it, since mesh.born, if it is large
	again    bool          // it was lost with a stream and is queued, or being written, again
	queued   bool          // it waits to be sent again
	writing  bool          // a stream is reading it
	acked    bool          // the peer has it, but it is still being written or queued
	prepared bool          // only touched by the stream that writes it
}

// Owner follows the life of a segment. The link's goroutines call it, never Send, and without holding a lock; it must
// not block and may call Mesh.Send.
type Owner interface {
	// Prepare runs once, right before the first transmission, so that the payload can be computed just
	// ahead of the wire. It is not called for payloads of at most CopyLimit bytes, nor for Control segments.
	Prepare(*Segment)
	// Acked runs once, when the peer has the segment, which may be reused afterwards. It does not run for segments that
	// were dropped because the peer was forgotten or the mesh ended.
	Acked(*Segment)
}

// Handler receives what peers send. Its methods are called concurrently by stream goroutines (one per
// stream), in no particular order across streams, and must not block on the network.
type Handler interface {
	// Place returns where to read the payload of h: a buffer of h.Length bytes, or nil for the stream's scratch buffer
	// (valid until Deliver returns). An error refuses the segment: it is acknowledged, and its payload discarded. If the
	// stream breaks before the payload is complete, Place is called again when the peer repeats the segment.
	Place(peer int, h Header) (dst []byte, err error)
	// Deliver is called exactly once for a segment whose payload is complete.
	Deliver(peer int, h Header, payload []byte)
}

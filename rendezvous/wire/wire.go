// Package wire defines every control message of gorun and how it is framed: what a launcher and a
// daemon say to each other over the ssh channel, and what daemons say to each other by gossip.
// It is the only importer of msgpack. Tensors never pass through here.
//
// A frame is a little-endian uint32 length, one type byte, and a msgpack map. The channel is
// authenticated before the first frame (by ssh, by inheritance of a pipe, or by gossip's encryption),
// yet every length is bounded and an unknown type or a malformed body is an error, not a guess.
package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/vmihailenco/msgpack/v5"
)

// Proto is the version of the messages in this package. Peers with different numbers part with an
// error that names both.
const Proto = 5

// MaxFrame bounds one control message. The largest is Job, which carries the user's environment.
const MaxFrame = 16 << 20

// Message is one of the message types of this package.
type Message interface{ kind() byte }

// newMessage maps the type byte to an empty message. A number is never reused for another meaning.
func newMessage(kind byte) Message {
	switch kind {
	case 1:
		return new(Hello)
	case 2:
		return new(Job)
	case 3:
		return new(Ready)
	case 4:
		return new(Roster)
	case 5:
		return new(Committed)
	case 6:
		return new(Started)
	case 7:
		return new(Output)
	case 8:
		return new(Exited)
	case 9:
		return new(Failed)
	case 10:
		return new(Log)
	case 11:
		return new(Stdin)
	case 12:
		return new(Signal)
	case 13:
		return new(Stop)
	case 14:
		return new(Done)
	case 15:
		return new(Taken)
	case 16:
		return new(Inspect)
	case 17:
		return new(Inspected)
	case 20:
		return new(Fence)
	case 21:
		return new(Rejoining)
	case 24:
		return new(HostsChanged)
	case 25:
		return new(Alive)
	case 26:
		return new(Reordered)
	case 27:
		return new(Topology)
	case 32:
		return new(Facts)
	case 33:
		return new(Propose)
	case 34:
		return new(Prepared)
	case 35:
		return new(Commit)
	case 36:
		return new(Abort)
	case 37:
		return new(Migrating)
	case 38:
		return new(Pause)
	case 39:
		return new(Moved)
	case 40:
		return new(Edges)
	case 41:
		return new(Try)
	case 42:
		return new(Hears)
	case 48:
		return new(Stalled)
	case 49:
		return new(AskStalled)
	case 50:
		return new(GiveUp)
	case 51:
		return new(Evidence)
	case 53:
		return new(Wanted)
	case 54:
		return new(Form)
	case 55:
		return new(Peers)
	case 58:
		return new(Without)
	case 59:
		return new(Stuck)
	case 60:
		return new(Name)
	case 61:
		return new(StateKept)
	case 62:
		return new(Alone)
	}
	return newClusterMessage(kind)
}

// Marshal encodes m as type byte and body, without the length.
func Marshal(m Message) ([]byte, error) {
	body, err := msgpack.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", m, err)
	}
	return append([]byte{m.kind()}, body...), nil
}

// Unmarshal is the inverse of Marshal.
func Unmarshal(b []byte) (Message, error) {
	if len(b) == 0 {
		return nil, errors.New("decode message: empty")
	}
	m := newMessage(b[0])
	if m == nil {
		return nil, fmt.Errorf("decode message: unknown type %d", b[0])
	}
	if _, err := sound(b[1:], 0); err != nil {
		return nil, fmt.Errorf("decode %T: %w", m, err)
	}
	if err := msgpack.Unmarshal(b[1:], m); err != nil {
		return nil, fmt.Errorf("decode %T: %w", m, err)
	}
	return m, nil
}

// Writer frames messages onto a stream. It may be used by several goroutines.
type Writer struct {
	mu sync.Mutex
	w  io.Writer
}

// NewWriter returns a Writer on w.
func NewWriter(w io.Writer) *Writer { return &Writer{w: w} }

// Encoded is a message as it is sent, for many receivers.
type Encoded struct {
	of    Message
	frame []byte
}

// Encode encodes a message once.
func Encode(m Message) (*Encoded, error) {
	b, err := Marshal(m)
	if err != nil {
		return nil, err
	}
	if len(b) > MaxFrame {
		return nil, fmt.Errorf("write %T: %d bytes exceed the limit of %d", m, len(b), MaxFrame)
	}
	frame := binary.LittleEndian.AppendUint32(make([]byte, 0, 4+len(b)), uint32(len(b)))
	return &Encoded{m, append(frame, b...)}, nil
}

func (e *Encoded) kind() byte { return e.of.kind() }

// Write sends m in a single write call.
func (w *Writer) Write(m Message) error {
	encoded, ok := m.(*Encoded)
	if !ok {
		var err error
		if encoded, err = Encode(m); err != nil {
			return err
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := w.w.Write(encoded.frame); err != nil {
		return fmt.Errorf("write %T: %w", encoded.of, err)
	}
	return nil
}

// Reader reads framed messages from a stream.
type Reader struct{ r *bufio.Reader }

// NewReader returns a Reader on r.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 64<<10)} }

// Read returns the next message, or io.EOF when the stream ended between two messages.
func (r *Reader) Read() (Message, error) {
	var head [4]byte
	if _, err := io.ReadFull(r.r, head[:]); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, fmt.Errorf("read message: %w", err)
		}
		return nil, err
	}
	n := binary.LittleEndian.Uint32(head[:])
	if n == 0 || n > MaxFrame {
		return nil, fmt.Errorf("read message: length %d is out of bounds", n)
	}
	// Grow with what really arrives: a forged length alone must not cost memory.
	b := make([]byte, 0, min(int(n), 64<<10))
	for len(b) < int(n) {
		if cap(b) == len(b) {
			b = append(b, 0)[:len(b)]
		}
		k, err := io.ReadFull(r.r, b[len(b):min(cap(b), int(n))])
		b = b[:len(b)+k]
		if err != nil {
			return nil, fmt.Errorf("read message: %w", err)
		}
	}
	return Unmarshal(b)
}

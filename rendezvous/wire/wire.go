// Package wire defines every control message of gorun and its framing: the messages between launcher and
// daemon over the ssh channel, and between daemons by gossip. PROTOCOL.md lists them.
// It is the only importer of msgpack. Tensors never pass through it.
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

// Proto is the version of the messages in this package. A peer with another version is refused with an
// error that names both.
const Proto = 5

// MaxFrame bounds one control message. The largest is Job, which carries the user's environment.
const MaxFrame = 16 << 20

// Message is one of the message types of this package.
type Message interface{ kind() byte }

// messages holds, by type byte, what returns an empty message. A number is never reused for another meaning.
var messages = table(
	empty[Hello], empty[Job], empty[Ready], empty[Roster], empty[Committed], empty[Started],
	empty[Output], empty[Exited], empty[Failed], empty[Log], empty[Stdin], empty[Signal], empty[Stop],
	empty[Done], empty[Taken], empty[Inspect], empty[Inspected], empty[Fence], empty[Rejoining],
	empty[HostsChanged], empty[Alive], empty[Reordered], empty[Facts], empty[Propose],
	empty[Prepared], empty[Commit], empty[Abort], empty[Migrating], empty[Pause], empty[Moved],
	empty[Edges], empty[Hears], empty[Stalled], empty[AskStalled], empty[GiveUp],
	empty[Evidence], empty[Wanted], empty[Form], empty[Peers], empty[Without], empty[Stuck],
	empty[Name], empty[StateKept], empty[Alone],
	empty[ClusterMember], empty[Reserve], empty[Queued], empty[Granted], empty[Elsewhere], empty[Refused],
	empty[Serve], empty[AskJobs], empty[Jobs], empty[Resume], empty[Detach], empty[Detached],
	empty[AskDetached], empty[DetachedJobs], empty[Reach], empty[AskUsage], empty[Usage], empty[AskFlight], empty[Flight],
	empty[Keep], empty[Kept], empty[Vote], empty[Voted], empty[Adopt], empty[Account],
	empty[AskFiles], empty[Files], empty[MoreFiles], empty[Spares], empty[AskPython], empty[Python],
)

func empty[T any, P interface {
	*T
	Message
}]() Message {
	return P(new(T))
}

// table sorts functions that return empty messages by the messages' type byte.
func table(makers ...func() Message) (t [256]func() Message) {
	for _, maker := range makers {
		kind := maker().kind()
		if t[kind] != nil {
			panic(fmt.Sprintf("wire: %T and %T have the same type byte", t[kind](), maker()))
		}
		t[kind] = maker
	}
	return t
}

// newMessage returns an empty message of a type byte, nil if there is none.
func newMessage(kind byte) Message {
	if maker := messages[kind]; maker != nil {
		return maker()
	}
	return nil
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

// Encoded is a message that is encoded once for many receivers.
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

// Coming waits for the beginning of the next message, and returns its size.
func Coming(r *bufio.Reader) (bytes int, err error) {
	head, err := r.Peek(4)
	if err != nil {
		return 0, err
	}
	return int(min(binary.LittleEndian.Uint32(head), MaxFrame)), nil
}

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
	// Grow with the bytes that arrive: a forged length alone must not cost memory.
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

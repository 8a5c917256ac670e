package session

import (
	"sync/atomic"
	"unsafe"

	"gorun/worker/session/codec"
	"gorun/worker/shm"
)

// mailbox is where a rank leaves its messages, once it has asked for one: "The mailbox" in codec/PROTOCOL.md. It belongs to the
// session's reader. The rank may write anything there at any time, so each word is read once, and checked.
type mailbox struct {
	region *shm.Region
	taken  uint64
	unread int // messages that were taken since the socket was read
}

// maxUnread is how many messages are taken before the socket is read. It bounds what a rank can send after its connection's end.
const maxUnread = 256

func (m *mailbox) word(at uint64) *uint64 { return (*uint64)(unsafe.Pointer(&m.region.Bytes()[at])) }

func (m *mailbox) asleep() *uint32 {
	return (*uint32)(unsafe.Pointer(&m.region.Bytes()[codec.MailboxAsleep]))
}

func (m *mailbox) put() uint64 { return atomic.LoadUint64(m.word(codec.MailboxPut)) }

// take copies the next of the messages up to put to b, which has room for any, and returns its length: 0 if there is none.
func (m *mailbox) take(b []byte, put uint64) (int, error) {
	there := put - m.taken
	if there == 0 {
		return 0, nil
	}
	if atomic.LoadUint32(m.asleep()) != 0 {
		atomic.StoreUint32(m.asleep(), 0)
	}
	data := m.region.Bytes()[codec.MailboxData:][:codec.MailboxBytes]
	at := m.taken % codec.MailboxBytes
	n := atomic.LoadUint64(m.word(codec.MailboxData + at))
	whole := (8 + n + 7) &^ 7
	if n < codec.PairLen || n > codec.MaxMessage || whole > there || there > codec.MailboxBytes {
		return 0, codec.Malformed("%d bytes in a mailbox with %d", n, there)
	}
	at = (at + 8) % codec.MailboxBytes
	copy(b[copy(b[:n], data[at:]):n], data)
	m.taken += whole
	atomic.StoreUint64(m.word(codec.MailboxTaken), m.taken)
	return int(n), nil
}

// sleep has the rank send MAIL after its next message. It returns put, which is more than taken if there is one already.
func (m *mailbox) sleep() uint64 {
	atomic.StoreUint32(m.asleep(), 1)
	put := m.put()
	if put != m.taken {
		atomic.StoreUint32(m.asleep(), 0)
	}
	return put
}

// openMailbox sends the rank a mailbox. Without memory for one it goes on without. No budget counts it: a session has one.
func (s *session) openMailbox() error {
	if s.wished {
		return codec.Malformed("a wish for a second mailbox")
	}
	s.wished = true
	region, err := shm.CreateSmall("gorun-mailbox", codec.MailboxSize)
	size := int64(0)
	if err != nil {
		s.server.cfg.Log.Warn("do without a mailbox", "rank", s.rank, "err", err)
	} else {
		s.mailbox, size = &mailbox{region: region}, region.Size()
	}
	s.send(region, func(b []byte) []byte { return codec.AppendMailbox(b, size) })
	return nil
}

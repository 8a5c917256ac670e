package talk

import (
	"sync"

	"gorun/rendezvous/wire"
)

// Mailbox is an unbounded queue of messages for a daemon: the loop must never wait for a slow host.
// It stays small anyway: control messages are few, and standard input waits for room.
type Mailbox struct {
	mu     sync.Mutex
	msgs   []wire.Message
	closed bool
	wake   chan struct{}
	room   chan struct{} // a token for each piece of standard input that rank 0 has not taken yet
}

func newMailbox() Mailbox {
	return Mailbox{wake: make(chan struct{}, 1), room: make(chan struct{}, wire.StdinWindow)}
}

// Put queues a message.
func (q *Mailbox) Put(m wire.Message) {
	q.mu.Lock()
	if !q.closed {
		q.msgs = append(q.msgs, m)
	}
	q.mu.Unlock()
	q.poke()
}

// Close drops what is put from now on.
func (q *Mailbox) Close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.poke()
}

func (q *Mailbox) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// Take returns what is queued and whether more may come.
func (q *Mailbox) Take() ([]wire.Message, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	m := q.msgs
	q.msgs = nil
	return m, !q.closed
}

// AwaitRoom returns when there is room for another piece of standard input.
func (q *Mailbox) AwaitRoom() { q.room <- struct{}{} }

// MakeRoom takes the word of the daemon that rank 0 has taken a piece of standard input.
func (q *Mailbox) MakeRoom() {
	select {
	case <-q.room:
	default: // it acknowledges what was never sent: nothing to make room for
	}
}

package session

import "sync"

// A rank that submits many small operations at once gets most of their completions together: they wait while a reader
// has more messages to read, and the reader sends them before it sleeps. A rank alone does not wait, because its reader
// finds the socket empty.

const (
	maxUnsent = 32       // messages that are read while completions wait
	maxHeld   = 16 << 10 // bytes of completions that wait for one rank
)

// outbox knows the sessions with completions that wait, and whether a reader will send them.
type outbox struct {
	mu      sync.Mutex
	readers int // that have read a message and will look for more
	read    int // messages, since completions were sent
	waiting []*session
}

// hold reports whether a reader will send what waits in a session.
func (b *outbox) hold(s *session) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.readers == 0 {
		return false
	}
	if !s.waits {
		s.waits = true
		b.waiting = append(b.waiting, s)
	}
	return true
}

// busy notes that a session's reader has a message.
func (b *outbox) busy(s *session) {
	b.mu.Lock()
	if !s.reading {
		s.reading = true
		b.readers++
	}
	if b.read++; b.read >= maxUnsent {
		b.takeLocked(s)
	}
	b.mu.Unlock()
	s.sendTaken()
}

// idle notes that a session's reader has no message, or will be long with one.
func (b *outbox) idle(s *session) {
	b.mu.Lock()
	if s.reading {
		s.reading = false
		b.readers--
	}
	b.takeLocked(s)
	b.mu.Unlock()
	s.sendTaken()
}

// takeLocked assigns all completions that wait to a session's reader, whose next sendTaken sends them.
func (b *outbox) takeLocked(s *session) {
	s.taken = append(s.taken, b.waiting...)
	for _, x := range b.waiting {
		x.waits = false
	}
	clear(b.waiting)
	b.waiting, b.read = b.waiting[:0], 0
}

// sendTaken sends what takeLocked has assigned to the session's reader, which calls it.
func (s *session) sendTaken() {
	for _, x := range s.taken {
		x.mu.Lock()
		x.sendEndedLocked()
		x.mu.Unlock()
	}
	clear(s.taken)
	s.taken = s.taken[:0]
}

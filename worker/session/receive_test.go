package session

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gorun/contrib/must"
	"gorun/worker/session/codec"
	"gorun/worker/shm"
)

// pair returns the two ends of a connection; no read at the daemon's end takes longer than 10 s.
func pair(t *testing.T) (conn *net.UnixConn, rank int) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must.Do(t, err)
	file := os.NewFile(uintptr(fds[0]), "daemon")
	c, err := net.FileConn(file)
	must.Do(t, err)
	file.Close()
	t.Cleanup(func() { c.Close(); unix.Close(fds[1]) })
	must.Do(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
	return c.(*net.UnixConn), fds[1]
}

// mailReceiver is the receiver of a session with a mailbox, and the rank's end of both.
type mailReceiver struct {
	receiver
	t    *testing.T
	rank int
	put  uint64
	sent uint32
	busy int // how often it had a message
}

func newMailReceiver(t *testing.T) *mailReceiver {
	t.Helper()
	conn, rank := pair(t)
	raw, err := conn.SyscallConn()
	must.Do(t, err)
	region, err := shm.CreateSmall("gorun-mailbox", codec.MailboxSize)
	must.Do(t, err)
	t.Cleanup(region.Release)
	r := &mailReceiver{t: t, rank: rank}
	r.init(raw, func() {}, func() { r.busy++ })
	r.mailbox = &mailbox{region: region}
	return r
}

// post puts the next of some numbered messages into the mailbox.
func (r *mailReceiver) post() {
	m := codec.AppendPair(nil, codec.TypeRelease, r.sent)
	data := r.mailbox.region.Bytes()[codec.MailboxData:]
	data[r.put%codec.MailboxBytes] = byte(len(m))
	copy(data[(r.put+8)%codec.MailboxBytes:], m)
	r.put, r.sent = r.put+16, r.sent+1
	atomic.StoreUint64(r.mailbox.word(codec.MailboxPut), r.put)
}

// expect receives the message with a number.
func (r *mailReceiver) expect(number uint32) {
	r.t.Helper()
	b, err := r.receive()
	must.Do(r.t, err)
	if got, err := codec.DecodePair(b); err != nil || got != number {
		r.t.Fatalf("message %d (%v), want %d", got, err, number)
	}
}

func (r *mailReceiver) expectEnd() {
	r.t.Helper()
	for range 2 {
		if b, err := r.receive(); !errors.Is(err, io.EOF) {
			r.t.Fatalf("message %x (%v), want the end", b, err)
		}
	}
}

// TestReceiverMeetsTheEndFirst: messages count that were put into the mailbox before the socket told of the end, later ones do not.
func TestReceiverMeetsTheEndFirst(t *testing.T) {
	r := newMailReceiver(t)
	r.mailbox.unread = maxUnread // so it looks at the socket first, as if the messages came while it did
	for range 3 {
		r.post()
	}
	must.Do(t, unix.Shutdown(r.rank, unix.SHUT_RDWR))
	for number := range uint32(3) {
		r.expect(number)
		r.post()
	}
	r.expectEnd()
}

// TestReceiverOfWhoNeverStops: a process that still has the mailbox of an ended connection does not keep the session.
func TestReceiverOfWhoNeverStops(t *testing.T) {
	r := newMailReceiver(t)
	must.Do(t, unix.Shutdown(r.rank, unix.SHUT_RDWR))
	for number := range uint32(maxUnread + 1) {
		r.post()
		r.expect(number)
	}
	r.post()
	r.expectEnd()
}

// TestReceiverReturnsMail: MAIL without a message is one itself, so that the reader comes out and others get their completions.
func TestReceiverReturnsMail(t *testing.T) {
	r := newMailReceiver(t)
	mail := codec.AppendPair(nil, codec.TypeMail, 0)
	for range 3 {
		must.Do(t, unix.Send(r.rank, mail, 0))
	}
	r.post()
	r.expect(0) // the socket is not read
	for n := range 3 {
		b, err := r.receive()
		must.Do(t, err)
		if codec.Type(b) != codec.TypeMail || r.busy != n+2 {
			t.Fatalf("message %x after %d of %d", b, r.busy, n+2)
		}
	}
	r.post()
	must.Do(t, unix.Send(r.rank, mail, 0))
	r.mailbox.unread = maxUnread
	r.expect(1) // instead of the MAIL
	must.Do(t, unix.Shutdown(r.rank, unix.SHUT_RDWR))
	r.expectEnd()
}

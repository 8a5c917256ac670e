package session_test

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"gorun/collective"
	"gorun/contrib/must"
	"gorun/worker/session/codec"
)

// mailClient is a rank with a mailbox.
type mailClient struct {
	*client
	mailbox []byte
	put     uint64
}

func joinMailbox(t *testing.T, h *host, rank int) *mailClient {
	t.Helper()
	c := join(t, h.name, rank)
	c.send(words(15, 0))
	b, fd := c.expect(15)
	return &mailClient{client: c, mailbox: c.mmap(fd, int(le.Uint64(b[8:])), unix.PROT_READ|unix.PROT_WRITE)}
}

func (c *mailClient) word(at int) *uint64 { return (*uint64)(unsafe.Pointer(&c.mailbox[at])) }

func (c *mailClient) space() int {
	return codec.MailboxBytes - int(c.put-atomic.LoadUint64(c.word(codec.MailboxTaken)))
}

// post puts a message into the mailbox, and reports whether the daemon had to be woken.
func (c *mailClient) post(b []byte) bool {
	c.t.Helper()
	whole := (8 + len(b) + 7) &^ 7
	must.Soon(c.t, "room in the mailbox", func() bool { return c.space() >= whole })
	data := c.mailbox[codec.MailboxData:][:codec.MailboxBytes]
	le.PutUint64(data[c.put%codec.MailboxBytes:], uint64(len(b)))
	for i, x := range b {
		data[(c.put+8+uint64(i))%codec.MailboxBytes] = x
	}
	return c.announce(whole)
}

func (c *mailClient) announce(n int) bool {
	c.put += uint64(n)
	atomic.StoreUint64(c.word(codec.MailboxPut), c.put)
	if !atomic.CompareAndSwapUint32((*uint32)(unsafe.Pointer(&c.mailbox[codec.MailboxAsleep])), 1, 0) {
		return false
	}
	c.send(words(16, 0))
	return true
}

// TestMailbox: messages of all lengths, many more than there is room for at once, arrive once and in order.
func TestMailbox(t *testing.T) {
	h := start(t, 1).begin()
	c := joinMailbox(t, h, 0)
	c.post(le.AppendUint64(words(2, 99), 1<<20))
	b, fd := c.expect(66)
	region, memory := le.Uint32(b[8:]), c.mmap(fd, int(le.Uint64(b[16:])), unix.PROT_READ|unix.PROT_WRITE)
	woken := 0
	for i := range 400 {
		le.PutUint32(memory, uint32(i))
		name := []byte(fmt.Sprint(i, " "))
		for at := range i * 37 % 4000 {
			name = append(name, 'a'+byte((7*i+at)%26))
		}
		o := allreduce(uint32(i), region, 1, string(name))
		o.out, o.kind, o.outBytes = none, collective.Allgather, 0
		if c.post(o.encode()) {
			woken++
		}
		if b, _ := c.expect(68); le.Uint32(b[4:]) != uint32(i) || le.Uint32(b[8:]) != 0 {
			t.Fatalf("completion %x of operation %d", b[:12], i)
		}
		if got := h.engine.last(); got != string(name) {
			t.Fatalf("operation %d has the name %q, want %q", i, got, name)
		}
		c.post(words(4, uint32(i)))
	}
	if c.put < 4*codec.MailboxBytes || woken == 0 {
		t.Errorf("%d bytes, %d wake-ups: the end of the memory was not passed, or nothing slept", c.put, woken)
	}
	c.post(words(6, 0))
	c.expect(69)
	c.send(words(16, 0)) // as a thread does that wrote before
	c.post(words(5, region))
	c.post(words(5, region))
	if b, _ := c.expect(70); !strings.Contains(string(b), "not this rank's") {
		t.Errorf("gone: %q", b)
	}
}

// mailboxes counts the mailboxes that this process has mapped, at the daemon's end and at the rank's.
func mailboxes(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	must.Do(t, err)
	return bytes.Count(maps, []byte("gorun-mailbox"))
}

// TestMailboxMemory: a mailbox takes nothing of the rank's memory for tensors, and goes with the session.
func TestMailboxMemory(t *testing.T) {
	h := start(t, 1).begin()
	before := mailboxes(t)
	c := join(t, h.name, 0)
	c.alloc(1 << 30) // all that it may have
	c.send(words(15, 0))
	b, fd := c.expect(15)
	unix.Close(fd)
	if n := le.Uint64(b[8:]); n != codec.MailboxSize || h.server.Arena(0) != 1<<30 || mailboxes(t) != before+1 {
		t.Errorf("a mailbox of %d bytes, %d of tensors, %d mailboxes", n, h.server.Arena(0), mailboxes(t))
	}
	c.close()
	must.Soon(t, "the mailbox is gone", func() bool { return mailboxes(t) == before })
}

// TestNoMailbox: a rank is told that there is no memory for a mailbox, and goes on by the socket. It asks once.
func TestNoMailbox(t *testing.T) {
	h := start(t, 1).begin()
	c := join(t, h.name, 0)
	var limit unix.Rlimit
	must.Do(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &limit))
	must.Do(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 16, Max: limit.Max}))
	c.send(words(15, 0))
	b, fd := c.expect(15)
	must.Do(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &limit))
	if le.Uint64(b[8:]) != 0 || fd >= 0 {
		t.Errorf("answer %x, descriptor %d", b, fd)
	}
	region, _ := c.alloc(1 << 20)
	c.send(allreduce(1, region, 1, "by the socket").encode())
	c.expect(68)
	c.send(words(15, 0))
	if b, _ := c.expect(70); !strings.Contains(string(b), "second mailbox") {
		t.Errorf("gone: %q", b)
	}
}

// TestMailboxOfWhoEnds: what a rank has put there before it ends counts.
func TestMailboxOfWhoEnds(t *testing.T) {
	h := start(t, 2).begin()
	h.engine.holdBack()
	c := joinMailbox(t, h, 0)
	region, _ := c.alloc(1 << 20)
	const many = 300
	for i := range many {
		c.post(allreduce(uint32(i), region, 1, fmt.Sprint(i)).encode())
	}
	c.close()
	must.Soon(t, "all operations", func() bool { return h.engine.pending() == many })
	h.engine.release()
}

// TestMailboxNonsense: what no mailbox holds ends the session, whatever the rank writes there.
func TestMailboxNonsense(t *testing.T) {
	for name, do := range map[string]func(c *mailClient){
		"a length of 0":        func(c *mailClient) { c.announce(8) },
		"a short message":      func(c *mailClient) { *c.word(codec.MailboxData) = 7; c.announce(16) },
		"more than is there":   func(c *mailClient) { *c.word(codec.MailboxData) = 64; c.announce(64) },
		"a long message":       func(c *mailClient) { *c.word(codec.MailboxData) = codec.MaxMessage + 1; c.announce(codec.MailboxBytes) },
		"a length that wraps":  func(c *mailClient) { *c.word(codec.MailboxData) = 1<<64 - 8; c.announce(64) },
		"more than there fits": func(c *mailClient) { *c.word(codec.MailboxData) = 8; c.announce(codec.MailboxBytes + 8) },
		"less than before":     func(c *mailClient) { c.post(words(13, 0)); *c.word(codec.MailboxData + 16) = 8; c.announce(-8) },
		"a part of a word":     func(c *mailClient) { *c.word(codec.MailboxData) = 8; c.announce(13) },
		"a second mailbox":     func(c *mailClient) { c.post(words(15, 0)) },
	} {
		t.Run(name, func(t *testing.T) {
			h := start(t, 1).begin()
			c := joinMailbox(t, h, 0)
			do(c)
			if b, _ := c.expect(70); le.Uint32(b[4:]) != uint32(collective.CodeInvalid) {
				t.Errorf("gone with code %d", le.Uint32(b[4:]))
			}
			c.ended()
		})
	}
}

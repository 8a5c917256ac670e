package verbs

import (
	"net"
	"os"
	"sync"
	"time"
)

// A message carries at most chunk bytes and at most a quarter of the ring, so that the copy into the ring, the wire and
// the copy out of it overlap.
const chunk = 256 << 10

// Conn is a connection whose bytes a queue pair carries. It ends with the TCP connection beside it. One goroutine may
// read and one may write at a time.
type Conn struct {
	tcp           net.Conn
	pair          Pair
	send, receive []byte // the rings

	mu     sync.Mutex
	filled sync.Cond // bytes can be read, or err is set
	freed  sync.Cond // bytes can be written, or err is set
	left   sync.Cond // users may be 0
	flow   flow
	timed  uint64        // the number of a message whose round trip is measured, counted from 1; 0 for none
	posted time.Time     // when it was
	rtt    time.Duration // the shortest, 0 if there was none
	err    error         // why the connection is closed
	users  int           // goroutines that use the rings or the pair
	drains bool          // nothing is sent any more
	limit  *time.Timer
	broke  func(error)     // called once with err after carry, nil before
	goes   *sync.WaitGroup // counts its goroutines

	one [1][]byte // of the goroutine that writes
	two [2][]byte
}

// newConn returns a connection over a connected pair. Until carry it leaves the TCP connection alone.
func newConn(tcp net.Conn, pair Pair, size Size, goes *sync.WaitGroup) *Conn {
	c := &Conn{tcp: tcp, pair: pair, flow: newFlow(size), goes: goes}
	c.send, c.receive = pair.Rings()
	c.filled.L, c.freed.L, c.left.L = &c.mu, &c.mu, &c.mu
	goes.Go(c.pump)
	return c
}

// carry makes it the connection of a stream: it ends with the TCP connection, which carries nothing any more, and ends
// that. broke is called once when it ends, unless it has already; then carry fails.
func (c *Conn) carry(broke func(error)) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.broke = broke
	c.users++
	c.goes.Go(func() {
		c.fail(ofPair(c.pair.Event()))
		c.mu.Lock()
		c.leave()
		c.mu.Unlock()
	})
	c.goes.Go(func() {
		_, err := c.tcp.Read(make([]byte, 1))
		if err == nil {
			err = ofPair(errFlow)
		}
		c.fail(err)
	})
	return nil
}

// pump polls for completions until the connection fails, and closes the pair when no goroutine uses it any more.
func (c *Conn) pump() {
	var some [32]Completion
	for {
		n, err := c.pair.Poll(some[:])
		if err == nil && n > 0 {
			err = c.completed(some[:n])
		} else if err == nil {
			err = c.pair.Wait()
		}
		if err != nil {
			c.fail(ofPair(err))
			break
		}
	}
	c.mu.Lock()
	for c.users > 0 {
		c.left.Wait()
	}
	c.mu.Unlock()
	c.pair.Close()
}

// completed processes completions and wakes the goroutines that wait for them.
func (c *Conn) completed(all []Completion) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	received := 0
	for _, completion := range all {
		if err := c.flow.complete(completion); err != nil {
			return err
		}
		if completion.Receive {
			received++
		}
	}
	if c.timed > 0 && c.flow.done >= c.timed {
		if d := time.Since(c.posted); c.rtt == 0 || d < c.rtt {
			c.rtt = d
		}
		c.timed = 0
	}
	if received > 0 {
		if err := c.pair.Receive(received); err != nil {
			return err
		}
	}
	c.filled.Signal()
	c.freed.Signal()
	if c.drains && c.flow.idle() {
		return errPaused
	}
	return c.report()
}

// report sends a message without bytes if the peer may be waiting for it. mu is held.
func (c *Conn) report() error {
	if c.drains || !c.flow.mustReport() {
		return nil
	}
	return c.pair.Write(0, 0, c.flow.send(0))
}

// drain ends the connection when the device has done what was posted, or after a time. It does not wait.
func (c *Conn) drain(within time.Duration) {
	c.mu.Lock()
	c.drains = true
	idle := c.flow.idle()
	c.mu.Unlock()
	if idle {
		c.fail(errPaused)
		return
	}
	time.AfterFunc(within, func() { c.fail(errPaused) })
}

// leave is the end of a use that users counts. mu is held.
func (c *Conn) leave() {
	if c.users--; c.users == 0 {
		c.left.Signal()
	}
}

// fail closes the connection because of err.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	c.users++ // so that the pair is freed after broke
	broke := c.broke
	if c.limit != nil {
		c.limit.Stop()
	}
	c.filled.Signal()
	c.freed.Signal()
	c.mu.Unlock()
	c.pair.Wake()
	if broke != nil {
		c.tcp.Close()
		broke(err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leave()
}

// Read implements net.Conn.
func (c *Conn) Read(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users++
	defer c.leave()
	for {
		if c.err != nil {
			return 0, c.err
		}
		at, n := c.flow.readable()
		if n = min(n, len(b)); n > 0 || len(b) == 0 {
			c.mu.Unlock()
			copy(b, c.receive[at:at+n])
			c.mu.Lock()
			if c.err != nil {
				return 0, c.err
			}
			c.flow.consume(n)
			if err := c.report(); err != nil {
				c.later(err)
			}
			return n, nil
		}
		c.filled.Wait()
	}
}

// later fails the connection, because of an error of the queue pair, once mu is free.
func (c *Conn) later(err error) { c.goes.Go(func() { c.fail(ofPair(err)) }) }

// Write implements net.Conn.
func (c *Conn) Write(b []byte) (int, error) {
	c.one[0] = b
	return c.write(true, c.one[:])
}

// WriteBuffers writes all buffers, and consumes the slice.
func (c *Conn) WriteBuffers(all [][]byte) error {
	_, err := c.write(true, all)
	return err
}

// WriteNow writes what fits without waiting.
func (c *Conn) WriteNow(a, b []byte) (int, error) {
	c.two = [2][]byte{a, b}
	return c.write(false, c.two[:])
}

// write writes all buffers, or what fits without waiting, and consumes the slice.
func (c *Conn) write(wait bool, all [][]byte) (done int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users++
	defer c.leave()
	for {
		for len(all) > 0 && len(all[0]) == 0 {
			all[0], all = nil, all[1:]
		}
		switch {
		case len(all) == 0:
			return done, nil
		case c.err != nil:
			return done, c.err
		}
		at, room := c.flow.room()
		room = min(room, chunk, max(len(c.send)/4, 1))
		if room == 0 || c.drains {
			if !wait {
				return done, nil
			}
			c.freed.Wait()
			continue
		}
		c.flow.reserved = 1 // reports may be posted meanwhile
		c.mu.Unlock()
		n := 0
		for ; n < room && len(all) > 0; all = all[1:] {
			k := copy(c.send[at+n:at+room], all[0])
			n += k
			if all[0] = all[0][k:]; len(all[0]) > 0 {
				break
			}
		}
		c.mu.Lock()
		c.flow.reserved = 0
		if c.err != nil {
			return done, c.err
		}
		if c.timed == 0 && c.flow.idle() {
			c.timed, c.posted = c.flow.sent+1, time.Now()
		}
		if err := c.pair.Write(at, n, c.flow.send(n)); err != nil {
			c.later(err)
			return done, err
		}
		done += n
	}
}

// Delivered returns how many bytes the peer's device has taken, and whether these are all that were written.
func (c *Conn) Delivered() (bytes uint64, all bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.flow.completed, c.flow.idle()
}

// RTT returns the shortest time from when a message was posted, with no other in flight, until the device reported that
// the peer has it.
func (c *Conn) RTT() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rtt
}

// Close implements net.Conn. It does not wait: it wakes the users of the connection, and the last one frees it.
func (c *Conn) Close() error {
	c.fail(net.ErrClosed)
	return nil
}

// LocalAddr implements net.Conn. It returns the address of the TCP connection.
func (c *Conn) LocalAddr() net.Addr { return c.tcp.LocalAddr() }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.tcp.RemoteAddr() }

// SetDeadline implements net.Conn. A deadline that passes closes the connection, also if nothing is read or written.
func (c *Conn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.limit != nil {
		c.limit.Stop()
		c.limit = nil
	}
	if !t.IsZero() && c.err == nil {
		c.limit = time.AfterFunc(time.Until(t), func() { c.fail(os.ErrDeadlineExceeded) })
	}
	return nil
}

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.SetDeadline(t) }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.SetDeadline(t) }

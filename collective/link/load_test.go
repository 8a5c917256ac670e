package link

import (
	"testing"
	"time"
)

func TestLoad(t *testing.T) {
	var b load
	var c Totals
	ack := func(ms int, bytes, base uint64) {
		b.acked += bytes
		if b.counts() {
			b.progress(time.Duration(ms)*time.Millisecond, bytes > 0, base, &c)
		}
	}
	ack(1, 100, 1) // nothing waits: the sender sets the pace
	b.waits = true
	ack(10, 500, 6)  // from here on
	ack(20, 1000, 9) // 100 bytes a ms
	b.waits = true   // more waits
	b.drain(25)
	if c.BusyTime != 0 {
		t.Errorf("it counts before the end: %+v", c)
	}
	ack(30, 1000, 20)
	ack(40, 1000, 25) // what waited has arrived
	ack(90, 9000, 26)
	if c.BusyBytes != 3000 || c.BusyTime != 30*time.Millisecond {
		t.Errorf("%d bytes in %v", c.BusyBytes, c.BusyTime)
	}
	b.waits = true
	ack(91, 500, 26)
	b.drain(28)
	ack(92, 2000, 26)  // a small segment before the last large one lacks
	ack(93, 0, 28)     // it comes by itself
	ack(999, 2500, 29) // of the next step of the training
	if c.BusyBytes != 5000 || c.BusyTime != 31*time.Millisecond {
		t.Errorf("%d bytes in %v, with the time until the next step", c.BusyBytes, c.BusyTime)
	}
	b.waits = true
	ack(100, 10, 30)
	ack(110, 10, 31)
	b.forget() // a stream broke
	ack(120, 10, 40)
	if c.BusyBytes != 5000 || b.timed {
		t.Errorf("%d bytes after a stream broke", c.BusyBytes)
	}
}

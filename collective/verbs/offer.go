package verbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// offer describes a side's queue pair, or reports that the side has none. Each side sends one over TCP, where the link
// authenticates it.
//
//	 0  u32  magic
//	 4  u8   whether there is a queue pair; the rest is 0 if not
//	 5  u8   RoCE v2
//	 6  u16  LID
//	 8  u32  number of the queue pair
//	12  u32  PSN
//	16  16   GID
//	32  u64  address of the ring
//	40  u32  rkey of the ring
//	44  u32  MTU in bytes
//	48  u32  bytes of the ring
//	52  u32  messages in flight
//
// After both offers each side connects its queue pair and sends verdictGood, or verdictBad if that failed. If both are
// good, each sends probeSize bytes over the queue pair and a second verdict about the bytes that it got.
const (
	offerMagic = 0x32616472 // "rda2"
	offerSize  = 56

	verdictBad  = 0
	verdictGood = 1

	probeSize = 8 << 10 // more than a packet: a path that loses large packets fails
)

type offer struct {
	Magic uint32
	Have  bool
	RoCE2 bool
	End
	RingBytes, Depth uint32
}

func (o *offer) size() Size { return Size{Ring: int(o.RingBytes), Depth: int(o.Depth)} }

func (o offer) encode() (b [offerSize]byte) {
	o.Magic = offerMagic
	binary.Encode(b[:], binary.LittleEndian, o)
	return b
}

var errOffer = errors.New("the peer offers no queue pair of this version")

func (o *offer) decode(b *[offerSize]byte) error {
	binary.Decode(b[:], binary.LittleEndian, o)
	if o.Magic != offerMagic {
		return errOffer
	}
	return nil
}

// fit reports why two queue pairs cannot be connected, nil if they can.
func fit(mine, theirs *offer) error {
	switch {
	case mine.size() != theirs.size():
		return fmt.Errorf("the other host has rings of %d bytes and %d messages instead of %d and %d", theirs.RingBytes,
			theirs.Depth, mine.RingBytes, mine.Depth)
	case mine.RoCE2 != theirs.RoCE2:
		return errors.New("one of the hosts has RoCE v2 and the other only v1; --rdma-options roce=1 uses v1 on both")
	}
	return nil
}

// exchange sends an offer and returns the peer's.
func exchange(conn net.Conn, mine *offer) (theirs offer, err error) {
	b := mine.encode()
	if _, err := conn.Write(b[:]); err != nil {
		return theirs, err
	}
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return theirs, err
	}
	return theirs, theirs.decode(&b)
}

// agree exchanges verdicts. It returns whether both are good; an error is one of conn.
func agree(conn net.Conn, reason error) (good bool, err error) {
	b := [1]byte{verdictGood}
	if reason != nil {
		b[0] = verdictBad
	}
	if _, err := conn.Write(b[:]); err != nil {
		return false, err
	}
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return false, err
	}
	return reason == nil && b[0] == verdictGood, nil
}

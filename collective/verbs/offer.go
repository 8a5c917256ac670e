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
	have  bool
	roce2 bool
	end   End
	size  Size
}

func (o *offer) encode() (b [offerSize]byte) {
	le := binary.LittleEndian
	le.PutUint32(b[0:], offerMagic)
	if o.have {
		b[4] = 1
		if o.roce2 {
			b[5] = 1
		}
		le.PutUint16(b[6:], o.end.LID)
		le.PutUint32(b[8:], o.end.Number)
		le.PutUint32(b[12:], o.end.PSN)
		copy(b[16:], o.end.GID[:])
		le.PutUint64(b[32:], o.end.Ring)
		le.PutUint32(b[40:], o.end.Key)
		le.PutUint32(b[44:], uint32(o.end.MTU))
		le.PutUint32(b[48:], uint32(o.size.Ring))
		le.PutUint32(b[52:], uint32(o.size.Depth))
	}
	return b
}

var errOffer = errors.New("the peer offers no queue pair of this version")

func (o *offer) decode(b *[offerSize]byte) error {
	le := binary.LittleEndian
	if le.Uint32(b[0:]) != offerMagic {
		return errOffer
	}
	*o = offer{have: b[4] == 1, roce2: b[5] == 1,
		end: End{Number: le.Uint32(b[8:]), PSN: le.Uint32(b[12:]), LID: le.Uint16(b[6:]), MTU: int(le.Uint32(b[44:])),
			Ring: le.Uint64(b[32:]), Key: le.Uint32(b[40:])},
		size: Size{Ring: int(le.Uint32(b[48:])), Depth: int(le.Uint32(b[52:]))}}
	copy(o.end.GID[:], b[16:])
	return nil
}

// fit reports why two queue pairs cannot be connected, nil if they can.
func fit(mine, theirs *offer) error {
	switch {
	case mine.size != theirs.size:
		return fmt.Errorf("the other host has rings of %d bytes and %d messages instead of %d and %d", theirs.size.Ring,
			theirs.size.Depth, mine.size.Ring, mine.size.Depth)
	case mine.roce2 != theirs.roce2:
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

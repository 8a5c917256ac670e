package session

import (
	"cmp"
	"math"

	"gorun/collective"
)

// The rank's half of the protocol: what message.go decodes is encoded here, and the other way round.

func appendHello(b []byte, h hello) []byte {
	m := extend(&b, helloLen)
	clear(m)
	copy(m, magic)
	le.PutUint32(m[helloVersion:], h.version)
	le.PutUint32(m[helloProcess:], uint32(h.process))
	le.PutUint32(m[helloPID:], uint32(h.pid))
	copy(m[helloToken:], h.token[:])
	return b
}

func appendAlloc(b []byte, request uint32, n uint64) []byte {
	return le.AppendUint64(le.AppendUint32(le.AppendUint32(b, typeAlloc), request), n)
}

// appendPair encodes RELEASE, FREE, BYE, SLOTS, WAKE and TRAFFIC.
func appendPair(b []byte, kind, value uint32) []byte {
	return le.AppendUint32(le.AppendUint32(b, kind), value)
}

func appendSubmit(b []byte, handle uint32, o *Operation) []byte {
	m := extend(&b, submitDims)
	le.PutUint32(m[offType:], typeSubmit)
	le.PutUint32(m[submitHandle:], handle)
	m[submitKind], m[submitDtype], m[submitOp], m[submitNdim] = byte(o.Kind), byte(o.Type), byte(o.Op)|byte(o.Coding)<<codingBits, byte(len(o.Shape))
	le.PutUint32(m[submitRoot:], uint32(int32(o.Root)))
	le.PutUint32(m[submitGroup:], o.Group)
	le.PutUint32(m[submitInRegion:], o.In.number())
	le.PutUint32(m[submitOutRegion:], o.Out.number())
	le.PutUint32(m[submitNameLen:], uint32(len(o.Name)))
	le.PutUint32(m[submitSplits:], uint32(len(o.Splits)))
	le.PutUint64(m[submitPre:], math.Float64bits(cmp.Or(o.Pre, 1)))
	le.PutUint64(m[submitPost:], math.Float64bits(cmp.Or(o.Post, 1)))
	le.PutUint64(m[submitInOffset:], uint64(o.In.Offset))
	le.PutUint64(m[submitInBytes:], uint64(o.In.Bytes))
	le.PutUint64(m[submitOutOffset:], uint64(o.Out.Offset))
	le.PutUint64(m[submitOutBytes:], uint64(o.Out.Bytes))
	for _, n := range o.Shape {
		b = le.AppendUint64(b, uint64(n))
	}
	for _, n := range o.Splits {
		b = le.AppendUint32(b, uint32(int32(n)))
	}
	return append(b, o.Name...)
}

func decodeTraffic(b []byte) (uint64, error) {
	if len(b) != trafficLen {
		return 0, malformed("traffic of %d bytes", len(b))
	}
	return le.Uint64(b[pairLen:]), nil
}

func decodeWelcome(b []byte) (Welcome, error) {
	if len(b) != welcomeLen || le.Uint32(b[welcomeVersion:]) != version {
		return Welcome{}, malformed("welcome of %d bytes", len(b))
	}
	field := func(at int) int { return int(int32(le.Uint32(b[at:]))) }
	w := Welcome{Epoch: le.Uint32(b[welcomeEpoch:]), Rank: field(welcomeRank), Size: field(welcomeSize),
		LocalRank: field(welcomeLocalRank), LocalSize: field(welcomeLocalSize), Hosts: field(welcomeHosts),
		slots: le.Uint32(b[welcomeFlags:])&slotsThere != 0}
	if w.Size < 1 || w.Rank < 0 || w.Rank >= w.Size {
		return w, malformed("welcome to rank %d of %d", w.Rank, w.Size)
	}
	return w, nil
}

func decodeShow(b []byte) (place int, number uint32, size int, err error) {
	if len(b) != showLen || le.Uint32(b[showPlace:]) >= maxSlotRanks || le.Uint64(b[showBytes:]) > math.MaxInt {
		return 0, 0, 0, malformed("memory of another rank, of %d bytes", len(b))
	}
	return int(le.Uint32(b[showPlace:])), le.Uint32(b[showNumber:]), int(le.Uint64(b[showBytes:])), nil
}

func decodeHide(b []byte) (place int, number uint32, err error) {
	if len(b) != hideLen || le.Uint32(b[showPlace:]) >= maxSlotRanks {
		return 0, 0, malformed("end of memory of another rank, of %d bytes", len(b))
	}
	return int(le.Uint32(b[showPlace:])), le.Uint32(b[showNumber:]), nil
}

func decodeRegion(b []byte) (request, number uint32, size int, err error) {
	if len(b) != regionLen || le.Uint64(b[regionBytes:]) > math.MaxInt {
		return 0, 0, 0, malformed("region of %d bytes", len(b))
	}
	return le.Uint32(b[regionRequest:]), le.Uint32(b[regionNumber:]), int(le.Uint64(b[regionBytes:])), nil
}

// decodeFail returns which message was refused, by number and type, and why.
func decodeFail(b []byte) (number, what uint32, _ *collective.Error, err error) {
	if len(b) < failText || uint64(len(b)) != failText+uint64(le.Uint32(b[failTextLen:])) {
		return 0, 0, nil, malformed("refusal of %d bytes", len(b))
	}
	return le.Uint32(b[failNumber:]), le.Uint32(b[failWhat:]),
		&collective.Error{Code: collective.Code(le.Uint32(b[failCode:])), Text: string(b[failText:])}, nil
}

func decodeGone(b []byte) (*collective.Error, error) {
	if len(b) < goneText || uint64(len(b)) != goneText+uint64(le.Uint32(b[goneTextLen:])) {
		return nil, malformed("end of world of %d bytes", len(b))
	}
	return &collective.Error{Code: collective.Code(le.Uint32(b[goneCode:])), Text: string(b[goneText:])}, nil
}

// decodeComplete makes no garbage for a completion without shape, rows and text.
func decodeComplete(b []byte, c *completion) error {
	if len(b) < completeDims {
		return malformed("completion of %d bytes", len(b))
	}
	ndim, rows, text := uint64(le.Uint32(b[completeNdim:])), uint64(le.Uint32(b[completeRows:])), uint64(le.Uint32(b[completeTextLen:]))
	if completeDims+8*(ndim+rows)+text != uint64(len(b)) {
		return malformed("completion of %d bytes with %d dimensions, %d rows and a text of %d bytes", len(b), ndim, rows, text)
	}
	offset, size, region := le.Uint64(b[completeOffset:]), le.Uint64(b[completeBytes:]), le.Uint64(b[completeRegionLen:])
	inRegion := le.Uint32(b[completeRegion:]) != noRegion // else offset is that of a slot
	if region > math.MaxInt || offset > math.MaxInt || inRegion && (offset > region || size > region-offset) {
		return malformed("completion with %d bytes at %d of a region of %d bytes", size, offset, region)
	}
	*c = completion{
		handle:      le.Uint32(b[completeHandle:]),
		code:        collective.Code(le.Uint32(b[completeCode:])),
		region:      le.Uint32(b[completeRegion:]),
		offset:      int(offset),
		bytes:       int(size),
		regionBytes: int64(region),
		fd:          le.Uint32(b[completeFlags:])&fdComes != 0,
	}
	b = b[completeDims:]
	c.dims, b = ints(b, int(ndim))
	c.rows, b = ints(b, int(rows))
	c.text = string(b)
	return nil
}

// ints reads n numbers and returns what follows.
func ints(b []byte, n int) ([]int, []byte) {
	if n == 0 {
		return nil, b
	}
	v := make([]int, n)
	for i := range v {
		v[i] = int(int64(le.Uint64(b[8*i:])))
	}
	return v, b[8*n:]
}

package collective

import (
	"encoding/binary"
	"errors"
	"iter"
	"math"

	"gorun/collective/kernel"
)

// Control messages between engines: payloads of control segments, little-endian.
//
// ready: what the ranks of one host submitted under one name. Nearly always they agree and there is one
// variant; if they do not, every host must be able to say who submitted what.
//
//	0  u8   1
//	1  u8   0
//	2  u16  variants
//	4  u32  group
//	8  u32  serial: the sender's count of ready messages
//	12 u16  length of name
//	14 u16  0
//	16 u64  bytes of the largest result that the sender's host has memory for, 0 if there is no limit
//	24 u32  length of what is inline
//	28      name
//	then for each variant
//	   u16  dimensions
//	   u16  ranks
//	   u8   kind, u8 type, u8 op, u8 coding
//	   u32  root (the group to remove)
//	   u64  prescale, u64 postscale (bits of a float64)
//	   u32  splits per rank (alltoall, gather, scatter: the size of the group, else 0)
//	   u64  each dimension (the first one of a ragged kind is 0; the ranks of a new group)
//	   for each rank: u32 rank, u64 rows (ragged kinds: its first dimension), u32 each split
//	then what is inline: what the host's ranks contribute to a small allreduce (inline.go)
//
// The others are
//
//	0  u8   which
//	1  u8   flag: 0 or 1
//	2  u16  0
//	4  u32  each number, one at least
//
// leave: a rank takes part in nothing any more. Its number.
//
// mark: the sender announces nothing from here on until a pause is over, or with the flag: goes on after it (pause.go).
// The number of the pause, not 0.
//
// declare: the sender has ranks in a group that its members declare (declare.go). The number of the group, and the
// members, ascending.
const (
	msgReady   = 1
	msgLeave   = 2
	msgMark    = 3
	msgDeclare = 4

	readyHead     = 28
	inlineAt      = 24
	variantHead   = 32
	signatureHead = variantHead - 4
	rankEntry     = 12
	shortHead     = 4

	maxControl = 1 << 20 // bytes of a message
)

var (
	errShort   = errors.New("message is cut short")
	errMessage = errors.New("message is malformed")
)

// appendReady appends the ready message for the requests of all local ranks of a group, of a host without a limit.
func appendReady(dst []byte, group, serial uint32, reqs []Request, ranks []int) []byte {
	le := binary.LittleEndian
	start := len(dst)
	dst = append(dst, msgReady, 0, 0, 0)
	dst = le.AppendUint32(dst, group)
	dst = le.AppendUint32(dst, serial)
	dst = le.AppendUint16(dst, uint16(len(reqs[0].Name)))
	dst = append(dst, 0, 0)
	dst = le.AppendUint64(dst, 0)
	dst = le.AppendUint32(dst, 0)
	dst = append(dst, reqs[0].Name...)
	variants := 0
	for i := range reqs {
		if !firstOfKind(reqs, i) {
			continue
		}
		variants++
		dst = appendVariant(dst, reqs, i, ranks)
	}
	le.PutUint16(dst[start+2:], uint16(variants))
	return dst
}

// firstOfKind reports whether no request before the i-th agrees with it.
func firstOfKind(reqs []Request, i int) bool {
	for j := range i {
		if reqs[j].agrees(&reqs[i]) {
			return false
		}
	}
	return true
}

func appendVariant(dst []byte, reqs []Request, first int, ranks []int) []byte {
	le := binary.LittleEndian
	r := &reqs[first]
	head := len(dst)
	dst = le.AppendUint16(dst, uint16(len(r.Shape)))
	dst = append(dst, 0, 0, byte(r.Kind), byte(r.Type), byte(r.Op), byte(r.Coding))
	dst = le.AppendUint32(dst, uint32(r.Root))
	dst = le.AppendUint64(dst, math.Float64bits(r.Pre))
	dst = le.AppendUint64(dst, math.Float64bits(r.Post))
	dst = le.AppendUint32(dst, uint32(len(r.Splits)))
	for i, d := range r.Shape {
		if i == 0 && r.Kind.ragged() {
			d = 0
		}
		dst = le.AppendUint64(dst, uint64(d))
	}
	count := 0
	for i := first; i < len(reqs); i++ {
		if reqs[i].agrees(r) {
			dst = le.AppendUint32(dst, uint32(ranks[i]))
			dst = le.AppendUint64(dst, uint64(reqs[i].rows()))
			for _, n := range reqs[i].Splits {
				dst = le.AppendUint32(dst, uint32(n))
			}
			count++
		}
	}
	le.PutUint16(dst[head+2:], uint16(count))
	return dst
}

// ready is a checked ready message. It refers to the bytes it was read from.
type ready struct {
	group, serial uint32
	variants      int
	room          uint64
	name, body    []byte
	inline        []byte
}

// all returns what the ranks of the host submitted, in the order of the first rank that did.
func (m *ready) all() iter.Seq[variant] {
	return func(yield func(variant) bool) {
		for rest, n := m.body, m.variants; n > 0; n-- {
			v, tail, _ := readVariant(rest)
			if rest = tail; !yield(v) {
				return
			}
		}
	}
}

// variant is one of the things that ranks of a host submitted.
type variant struct {
	signature []byte // everything but the ranks: two ranks agree if it is equal
	ranks     []byte // entries of rank, rows and splits
	entry     int    // bytes of an entry
}

// readReady checks a ready message to its last byte.
func readReady(p []byte) (ready, error) {
	m, err := splitReady(p)
	if err != nil {
		return ready{}, err
	}
	rest := m.body
	for range m.variants {
		v, tail, err := readVariant(rest)
		if err != nil {
			return ready{}, err
		}
		if err := v.check(); err != nil {
			return ready{}, err
		}
		rest = tail
	}
	if len(rest) != 0 {
		return ready{}, errMessage
	}
	return m, nil
}

// splitReady takes a ready message apart, without looking at its variants.
func splitReady(p []byte) (ready, error) {
	le := binary.LittleEndian
	if len(p) < readyHead {
		return ready{}, errShort
	}
	m := ready{group: le.Uint32(p[4:]), serial: le.Uint32(p[8:]), variants: int(le.Uint16(p[2:])), room: le.Uint64(p[16:])}
	n := int(le.Uint16(p[12:]))
	if p[0] != msgReady || p[1]|p[14]|p[15] != 0 || n == 0 || n > MaxName || m.variants == 0 {
		return ready{}, errMessage
	}
	end := len(p) - int(min(le.Uint32(p[inlineAt:]), maxControl))
	if end < readyHead+n {
		return ready{}, errShort
	}
	m.name, m.body, m.inline = p[readyHead:readyHead+n], p[readyHead+n:end], p[end:]
	return m, nil
}

// readVariant splits off the first variant.
func readVariant(p []byte) (v variant, rest []byte, err error) {
	le := binary.LittleEndian
	if len(p) < variantHead {
		return variant{}, nil, errShort
	}
	dims, ranks, splits := int(le.Uint16(p)), int(le.Uint16(p[2:])), le.Uint32(p[28:])
	kind := Kind(p[4])
	if dims > maxDims && kind != AddGroup || ranks == 0 || !kernel.Coding(p[7]).Valid() ||
		splits > maxControl || splits > 0 && !kind.exchanges() {
		return variant{}, nil, errMessage
	}
	sig := variantHead + 8*dims
	entry := rankEntry + 4*int(splits)
	end := sig + entry*ranks
	if len(p) < end {
		return variant{}, nil, errShort
	}
	// The count of ranks lies in the head but is no part of what was submitted.
	return variant{signature: p[4:sig:sig], ranks: p[sig:end:end], entry: entry}, p[end:], nil
}

// check refuses what no engine sends: numbers that would overflow where they are used.
func (v variant) check() error {
	kind, typ, dims := Kind(v.signature[0]), kernel.Type(v.signature[1]), v.signature[signatureHead:]
	if kind == 0 || int(kind) >= len(kinds) || kind.hasTensor() && !typ.Valid() || kind == Recv || kind == Peek {
		return errMessage
	}
	if c := kernel.Coding(v.signature[3]); c > kernel.CodingNone && !(kind.reduces() && c.Codes(typ)) {
		return errMessage
	}
	for ; len(dims) > 0; dims = dims[8:] {
		if dims[7]&0x80 != 0 {
			return errMessage
		}
	}
	for i := range v.count() {
		if _, rows := v.rank(i); rows < 0 {
			return errMessage
		}
		for j := range v.splits() {
			if v.split(i, j) > math.MaxInt32 {
				return errMessage
			}
		}
	}
	return nil
}

func (v variant) kind() Kind { return Kind(v.signature[0]) }

func (v variant) count() int { return len(v.ranks) / v.entry }

func (v variant) rank(i int) (rank, rows int) {
	e := v.ranks[i*v.entry:]
	return int(binary.LittleEndian.Uint32(e)), int(binary.LittleEndian.Uint64(e[4:]))
}

// splits returns how many splits each rank has.
func (v variant) splits() int { return (v.entry - rankEntry) / 4 }

// split returns the rows that the i-th rank has for the j-th one of the group.
func (v variant) split(i, j int) int {
	return int(binary.LittleEndian.Uint32(v.ranks[i*v.entry+rankEntry+4*j:]))
}

// request returns what the ranks of a variant submitted, as far as it was sent.
func (v variant) request() (r Request) {
	v.read(&r)
	return r
}

// read is request into a Request whose Shape is used again.
func (v variant) read(r *Request) {
	le := binary.LittleEndian
	p := v.signature
	*r = Request{Shape: r.Shape[:0], Kind: Kind(p[0]), Type: kernel.Type(p[1]), Op: kernel.Op(p[2]),
		Coding: kernel.Coding(p[3]), Root: int(int32(le.Uint32(p[4:]))),
		Pre: math.Float64frombits(le.Uint64(p[8:])), Post: math.Float64frombits(le.Uint64(p[16:]))}
	for p := p[signatureHead:]; len(p) > 0; p = p[8:] {
		r.Shape = append(r.Shape, int(le.Uint64(p)))
	}
}

// shortMessage returns a message that is no ready message.
func shortMessage(which, flag byte, numbers ...int) []byte {
	p := []byte{which, flag, 0, 0}
	for _, n := range numbers {
		p = binary.LittleEndian.AppendUint32(p, uint32(n))
	}
	return p
}

// readShort is the inverse of shortMessage.
func readShort(p []byte) (which, flag byte, numbers []int, err error) {
	if len(p) <= shortHead || len(p)%4 != 0 {
		return 0, 0, nil, errShort
	}
	if p[1] > 1 || p[2]|p[3] != 0 {
		return 0, 0, nil, errMessage
	}
	for rest := p[shortHead:]; len(rest) > 0; rest = rest[4:] {
		numbers = append(numbers, int(binary.LittleEndian.Uint32(rest)))
	}
	if p[1] == 1 && p[0] != msgMark || len(numbers) > 1 && p[0] != msgDeclare || p[0] == msgMark && numbers[0] == 0 {
		return 0, 0, nil, errMessage
	}
	return p[0], p[1], numbers, nil
}

// hash names an operation on the wire: FNV-1a of group and name.
func hash[T string | []byte](group uint32, name T) uint64 {
	const prime = 1099511628211
	h := uint64(14695981039346656037)
	for i := range 4 {
		h = (h ^ uint64(byte(group>>(8*i)))) * prime
	}
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * prime
	}
	return h
}

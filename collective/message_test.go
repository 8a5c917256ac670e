package collective

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"gorun/collective/kernel"
	"gorun/contrib/must"
)

func readyOf(parts []Request, ranks ...int) []byte {
	return appendReady(nil, 3, 7, parts, ranks)
}

var (
	sum    = Request{Kind: Allreduce, Name: "grad.0", Type: kernel.Float32, Op: kernel.Sum, Pre: 1, Post: 0.5, Shape: []int{3, 4}}
	gather = Request{Kind: Allgather, Name: "grad.0", Type: kernel.Int8, Pre: 1, Post: 1, Shape: []int{9, 2}}
)

func TestReadyRoundTrip(t *testing.T) {
	taller := gather
	taller.Shape = []int{1, 2}
	m, err := readReady(readyOf([]Request{sum, gather, sum, taller}, 4, 5, 6, 8))
	must.Do(t, err)
	if m.group != 3 || m.serial != 7 || string(m.name) != "grad.0" || m.variants != 2 {
		t.Fatalf("read %+v", m)
	}
	first, rest, _ := readVariant(m.body)
	second, _, _ := readVariant(rest)
	got := first.request()
	if got.Name = sum.Name; !got.agrees(&sum) || !slices.Equal(got.Shape, sum.Shape) || math.Float64bits(got.Post) != math.Float64bits(0.5) {
		t.Errorf("first variant is %+v", got)
	}
	got = second.request()
	if !got.agrees(&gather) || got.Shape[0] != 0 {
		t.Errorf("second variant is %+v", got)
	}
	for i, want := range [][2]int{{5, 9}, {8, 1}} {
		if rank, rows := second.rank(i); rank != want[0] || rows != want[1] {
			t.Errorf("entry %d is rank %d with %d rows, want %v", i, rank, rows, want)
		}
	}
	if !m.from([]int{8, 6, 5, 4}) || m.from([]int{4, 5, 6}) || m.from([]int{4, 5, 6, 7}) || m.from([]int{4, 5, 6, 7, 8}) {
		t.Error("the message tells of other ranks")
	}
}

func TestReadySplits(t *testing.T) {
	parts := []Request{{Kind: Alltoall, Name: "a", Type: kernel.Int8, Pre: 1, Post: 1, Shape: []int{9, 2}, Splits: []int{4, 5}},
		{Kind: Alltoall, Name: "a", Type: kernel.Int8, Pre: 1, Post: 1, Shape: []int{3, 2}, Splits: []int{3, 0}}}
	p := readyOf(parts, 1, 2)
	m, err := readReady(p)
	if err != nil || m.variants != 1 {
		t.Fatalf("%d variants, error %v", m.variants, err)
	}
	v, _, _ := readVariant(m.body)
	for i, r := range parts {
		if rank, _ := v.rank(i); rank != i+1 || v.splits() != 2 || v.split(i, 0) != r.Splits[0] || v.split(i, 1) != r.Splits[1] {
			t.Errorf("entry %d is rank %d with splits %d, %d, want %v", i, rank, v.split(i, 0), v.split(i, 1), r.Splits)
		}
	}
	for i := range p {
		if _, err := readReady(p[:i]); err == nil {
			t.Errorf("the first %d of %d bytes were accepted", i, len(p))
		}
	}
	p[len(p)-1] = 0x80
	if _, err := readReady(p); err == nil {
		t.Error("a negative split was accepted")
	}
}

func TestReadyIsChecked(t *testing.T) {
	good := readyOf([]Request{gather}, 1)
	if _, err := readReady(good); err != nil {
		t.Fatal(err)
	}
	for i := range good {
		if _, err := readReady(good[:i]); err == nil {
			t.Errorf("the first %d of %d bytes were accepted", i, len(good))
		}
	}
	if _, err := readReady(append(slices.Clone(good), 0)); err == nil {
		t.Error("a byte too many was accepted")
	}
	variant := readyHead + len(gather.Name)
	for name, at := range map[string]int{"type": 0, "no variant": 2, "no name": 12, "reserved": 14, "dimensions": variant + 1,
		"ranks": variant + 3, "kind": variant + 4, "element": variant + 5, "negative dimension": variant + variantHead + 15,
		"negative rows": len(good) - 1} {
		bad := slices.Clone(good)
		bad[at] ^= 0xff
		if name == "no variant" || name == "no name" {
			bad[at] = 0
		}
		if _, err := readReady(bad); err == nil {
			t.Errorf("another %s was accepted", name)
		}
	}
}

func FuzzReady(f *testing.F) {
	f.Add(readyOf([]Request{sum}, 0))
	f.Add(readyOf([]Request{gather, sum}, 0, 1))
	f.Add(readyOf([]Request{{Kind: Alltoall, Name: "a", Type: kernel.Int8, Pre: 1, Post: 1, Shape: []int{9}, Splits: []int{4, 5, 0}}}, 2))
	f.Add(readyOf([]Request{{Kind: Barrier, Name: "b", Pre: 1, Post: 1}}, 2))
	f.Add([]byte{1, 0, 255, 255})
	carrying := readyOf([]Request{sum}, 0)
	carrying[14] = 4
	f.Add(append(carrying, 1, 2, 3, 4))
	f.Fuzz(func(t *testing.T, p []byte) {
		g := newGroup(twoHosts, 3, nil)
		tab := newReadiness(g)
		before := bytes.Clone(p)
		// The whole way of a message from a peer: nothing may panic, whatever it holds.
		if err := tab.hear(20, p); err != nil && len(tab.open) > 0 {
			t.Error("a refused message left an operation behind")
		}
		if starts(tab.happened()) {
			t.Error("started without our contribution")
		}
		for _, o := range tab.open {
			r := sum
			r.Name = o.name
			if tab.submit(o.group, 0, r) != nil {
				continue
			}
			for _, e := range tab.happened() {
				if e.err != nil && len(e.err.Text) == 0 {
					t.Error("an error without text")
				}
			}
		}
		if !bytes.Equal(p, before) {
			t.Error("the message was changed")
		}
		if m, err := readReady(p); err == nil && m.variants == 1 {
			// What was accepted is what an engine writes.
			x, _, _ := readVariant(m.body)
			r := x.request()
			r.Name = string(m.name)
			var parts []Request
			var ranks []int
			for i := range x.count() {
				rank, rows := x.rank(i)
				part := r
				if r.Kind.ragged() {
					part.Shape = slices.Clone(r.Shape)
					part.Shape[0] = rows
				} else if rows != 0 {
					return // ignored
				}
				for j := range x.splits() {
					part.Splits = append(part.Splits, x.split(i, j))
				}
				parts, ranks = append(parts, part), append(ranks, rank)
			}
			if r.Kind.ragged() && r.Shape[0] != 0 {
				return // ignored
			}
			again := appendReady(nil, m.group, m.serial, parts, ranks)
			binary.LittleEndian.PutUint16(again[14:], uint16(len(m.inline)))
			binary.LittleEndian.PutUint64(again[16:], m.room)
			if again = append(again, m.inline...); !bytes.Equal(again, p) {
				t.Errorf("%x was read and written as %x", p, again)
			}
		}
	})
}

func FuzzShort(f *testing.F) {
	f.Add(shortMessage(msgLeave, 0, 2))
	f.Add(shortMessage(msgMark, 1, 7))
	f.Add(shortMessage(msgDeclare, 0, declared+1, 0, 2))
	f.Add(shortMessage(msgDeclare, 0, declared+1, 2, 0))
	f.Add(shortMessage(msgDeclare, 0, 3, 0))
	f.Add([]byte{msgDeclare, 0, 0, 0, 0, 0, 0, 64, 0, 0})
	f.Add([]byte{msgMark, 2, 0, 0, 1, 0, 0, 0})
	f.Add([]byte{msgLeave, 0, 1, 0, 1, 0, 0, 0})
	f.Add(shortMessage(msgMark, 1, 0))
	f.Add(shortMessage(msgMark, 0, 1, 2))
	f.Add(shortMessage(msgLeave, 1, 1))
	f.Fuzz(func(t *testing.T, p []byte) {
		which, flag, numbers, err := readShort(p)
		if err != nil {
			return
		}
		if flag > 1 || flag == 1 && which != msgMark || len(numbers) > 1 && which != msgDeclare || which == msgMark && numbers[0] == 0 {
			t.Errorf("accepted what no engine writes: %x", p)
		}
		if !bytes.Equal(shortMessage(which, flag, numbers...), p) {
			t.Errorf("accepted what no engine writes: %x", p)
		}
		world := newGroup(twoHosts, 0, nil)
		tab := &directory{byID: map[uint32]*group{0: world}, sets: map[uint32][]int{}}
		id, ranks := uint32(numbers[0]), numbers[1:]
		if tab.hear(20, id, ranks) != nil {
			if tab.declared != 0 {
				t.Error("a group that was refused is there")
			}
			return
		}
		g := tab.find(id)
		if g == nil || !slices.Equal(g.ranks, ranks) || tab.hear(20, id, ranks) != nil || tab.declared != 1 {
			t.Errorf("group %d of ranks %v is %+v", id, ranks, g)
		}
	})
}

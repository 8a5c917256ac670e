package session

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"gorun/collective"
)

// vector is one message of testdata/rankproto.txt.
type vector struct {
	kind   string
	fields map[string]string
	bytes  []byte
}

func vectors(t testing.TB) []vector {
	t.Helper()
	f, err := os.Open("../../testdata/rankproto.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []vector
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case line == "" || line[0] == '#':
		case line[0] == ' ':
			b, err := hex.DecodeString(strings.TrimSpace(line))
			if err != nil {
				t.Fatal(err)
			}
			last := &all[len(all)-1]
			last.bytes = append(last.bytes, b...)
		default:
			words := strings.Fields(line)
			v := vector{kind: words[0], fields: map[string]string{}}
			for _, w := range words[1:] {
				k, x, _ := strings.Cut(w, "=")
				v.fields[k] = x
			}
			all = append(all, v)
		}
	}
	return all
}

func (v vector) int(name string) int {
	n, err := strconv.Atoi(v.fields[name])
	if err != nil {
		panic(fmt.Sprintf("%s: field %s: %v", v.kind, name, err))
	}
	return n
}

func (v vector) ints(name string) []int {
	if v.fields[name] == "-" {
		return nil
	}
	var all []int
	for _, s := range strings.Split(v.fields[name], ",") {
		n, err := strconv.Atoi(s)
		if err != nil {
			panic(err)
		}
		all = append(all, n)
	}
	return all
}

func (v vector) text(name string) string {
	if v.fields[name] == "-" {
		return ""
	}
	return v.fields[name]
}

func TestGoldenFromRank(t *testing.T) {
	for _, v := range vectors(t) {
		got := map[string]string{}
		var err error
		switch v.kind {
		case "hello":
			var h hello
			h, err = decodeHello(v.bytes)
			got = map[string]string{"rank": fmt.Sprint(h.process), "pid": fmt.Sprint(h.pid), "token": hex.EncodeToString(h.token[:])}
		case "alloc":
			var request uint32
			var n uint64
			request, n, err = decodeAlloc(v.bytes)
			got = map[string]string{"request": fmt.Sprint(request), "bytes": fmt.Sprint(n)}
		case "env":
			var name, value string
			name, value, err = decodeEnv(v.bytes)
			got = map[string]string{"name": name, "value": value}
		case "release", "free", "bye", "kept", "batch":
			var value uint32
			value, err = decodePair(v.bytes)
			for name := range v.fields {
				got[name] = fmt.Sprint(value)
			}
		case "submit":
			var m submit
			err = decodeSubmit(v.bytes, &m)
			dims, splits := []string{}, []string{}
			for i := 0; i < len(m.dims); i += 8 {
				dims = append(dims, fmt.Sprint(int64(le.Uint64(m.dims[i:]))))
			}
			for i := 0; i < len(m.splits); i += 4 {
				splits = append(splits, fmt.Sprint(int32(le.Uint32(m.splits[i:]))))
			}
			got = map[string]string{"handle": fmt.Sprint(m.handle), "kind": fmt.Sprint(uint8(m.kind)), "dtype": fmt.Sprint(uint8(m.dtype)),
				"op": fmt.Sprint(uint8(m.op) | uint8(m.coding)<<4), "root": fmt.Sprint(m.root), "group": fmt.Sprint(m.group),
				"in_region": fmt.Sprint(m.in.region), "in_offset": fmt.Sprint(m.in.offset), "in_bytes": fmt.Sprint(m.in.bytes),
				"out_region": fmt.Sprint(m.out.region), "out_offset": fmt.Sprint(m.out.offset), "out_bytes": fmt.Sprint(m.out.bytes),
				"pre": fmt.Sprintf("%.1f", m.pre), "post": fmt.Sprintf("%.1f", m.post),
				"dims": list(dims), "splits": list(splits), "name": string(m.name)}
		default:
			continue
		}
		if err != nil {
			t.Errorf("decode %s %v: %v", v.kind, v.fields, err)
		}
		if fmt.Sprint(got) != fmt.Sprint(v.fields) {
			t.Errorf("decode %s:\n got %v\nwant %v", v.kind, got, v.fields)
		}
	}
}

func list(words []string) string {
	if len(words) == 0 {
		return "-"
	}
	return strings.Join(words, ",")
}

func TestGoldenFromDaemon(t *testing.T) {
	seen := 0
	for _, v := range vectors(t) {
		var got []byte
		switch v.kind {
		case "welcome":
			w := World{Epoch: uint32(v.int("epoch")), Size: v.int("size"), Hosts: v.int("hosts"), Places: make([]Place, v.int("local_size"))}
			p := Place{Rank: v.int("rank"), LocalRank: v.int("local_rank"), CrossRank: v.int("cross_rank"), CrossSize: v.int("cross_size")}
			got = appendWelcome(nil, w, p, false, v.fields["job"])
		case "region":
			got = appendRegion(nil, uint32(v.int("request")), uint32(v.int("region")), int64(v.int("bytes")))
		case "fail":
			got = appendFail(nil, uint32(v.int("number")), uint32(v.int("what")), collective.Code(v.int("code")), v.text("text"))
		case "complete":
			got = appendComplete(nil, &completion{handle: uint32(v.int("handle")), code: collective.Code(v.int("code")), region: uint32(v.int("region")),
				offset: v.int("offset"), bytes: v.int("bytes"), regionBytes: int64(v.int("region_bytes")), fd: v.int("flags") == 1,
				dims: v.ints("dims"), rows: v.ints("rows"), text: v.text("text")})
		case "goodbye":
			got = appendGoodbye(nil)
		case "gone":
			got = appendGone(nil, collective.Code(v.int("code")), v.text("text"))
		case "completed":
			for i, handle := range v.ints("handles") {
				took := time.Duration(v.ints("flags")[i]>>1) * time.Microsecond
				got = appendCompleted(got, &completion{handle: uint32(handle), took: took})
			}
		case "changed":
			got = appendChanged(nil, v.int("flags")&2 != 0, v.int("flags")&1 != 0, int64(v.int("stamp")))
		default:
			continue
		}
		seen++
		if !bytes.Equal(got, v.bytes) {
			t.Errorf("encode %s %v:\n got %x\nwant %x", v.kind, v.fields, got, v.bytes)
		}
	}
	if seen != 11 {
		t.Errorf("%d vectors of the daemon, want 11", seen)
	}
}

// TestReusedBuffer encodes into a buffer full of old bytes: nothing of them may show.
func TestReusedBuffer(t *testing.T) {
	dirty := bytes.Repeat([]byte{0xAA}, 4096)
	w, p := World{Epoch: 1, Size: 2, Places: make([]Place, 1)}, Place{}
	encoders := map[string]func(b []byte) []byte{
		"welcome":  func(b []byte) []byte { return appendWelcome(b, w, p, true, "j") },
		"region":   func(b []byte) []byte { return appendRegion(b, 1, 2, 3) },
		"fail":     func(b []byte) []byte { return appendFail(b, 1, 2, 3, "t") },
		"complete": func(b []byte) []byte { return appendComplete(b, &completion{dims: []int{1}, text: "t"}) },
		"goodbye":  appendGoodbye,
		"gone":     func(b []byte) []byte { return appendGone(b, 1, "t") },
		"changed":  func(b []byte) []byte { return appendChanged(b, true, false, 7) },
	}
	for name, encode := range encoders {
		if got, want := encode(dirty[:0]), encode(nil); !bytes.Equal(got, want) {
			t.Errorf("%s:\n got %x\nwant %x", name, got, want)
		}
	}
}

func TestCut(t *testing.T) {
	long := strings.Repeat("ü", maxText)
	for _, c := range []struct{ in, want string }{
		{"fine", "fine"}, {"a\xffb", "ab"}, {long, long[:maxText]}, {"x" + long, ("x" + long)[:maxText-1]},
	} {
		if got := cut(c.in); got != c.want {
			t.Errorf("cut(%.20q…) has %d bytes, want %d", c.in, len(got), len(c.want))
		}
	}
}

// FuzzFromRank feeds the decoders what a hostile rank could send: they return errors, and what they accept
// encodes the same message.
func FuzzFromRank(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add(v.bytes)
	}
	f.Add([]byte{3, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := decodeHello(b); err == nil && (h.process < 0 || len(b) != helloLen) {
			t.Errorf("accepted hello %x", b)
		}
		if _, _, err := decodeAlloc(b); err == nil && len(b) != allocLen {
			t.Errorf("accepted alloc %x", b)
		}
		if len(b) >= 4 {
			if name, value, err := decodeEnv(b); err == nil && (name == "" || 5+len(name)+len(value) != len(b)) {
				t.Errorf("accepted variable %x", b)
			}
			if _, err := decodePair(b); err == nil && len(b) != pairLen {
				t.Errorf("accepted pair %x", b)
			}
		}
		var m submit
		if err := decodeSubmit(b, &m); err != nil {
			if !errors.Is(err, errMalformed) {
				t.Errorf("error %v does not say malformed", err)
			}
			return
		}
		if submitDims+len(m.dims)+len(m.splits)+len(m.name) != len(b) || len(m.dims) > 8*maxDims {
			t.Errorf("accepted %d bytes as %d+%d+%d", len(b), len(m.dims), len(m.splits), len(m.name))
		}
	})
}

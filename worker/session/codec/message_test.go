package codec

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
	"gorun/contrib/must"
)

// vector is one message of testdata/rankproto.txt.
type vector struct {
	kind   string
	fields map[string]string
	bytes  []byte
}

func vectors(t testing.TB) []vector {
	t.Helper()
	f, err := os.Open("../../../testdata/rankproto.txt")
	must.Do(t, err)
	defer f.Close()
	var all []vector
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case line == "" || line[0] == '#':
		case line[0] == ' ':
			b, err := hex.DecodeString(strings.TrimSpace(line))
			must.Do(t, err)
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

func (v vector) welcome() Welcome {
	return Welcome{Epoch: uint32(v.int("epoch")), Rank: v.int("rank"), Size: v.int("size"), Hosts: v.int("hosts"),
		LocalRank: v.int("local_rank"), LocalSize: v.int("local_size"), CrossRank: v.int("cross_rank"), CrossSize: v.int("cross_size"),
		Job: v.fields["job"]}
}

func TestGoldenFromRank(t *testing.T) {
	for _, v := range vectors(t) {
		got := map[string]string{}
		var err error
		switch v.kind {
		case "hello":
			var h Hello
			h, err = DecodeHello(v.bytes)
			got = map[string]string{"rank": fmt.Sprint(h.Process), "pid": fmt.Sprint(h.PID), "token": hex.EncodeToString(h.Token[:])}
		case "alloc":
			var request uint32
			var n uint64
			request, n, err = DecodeAlloc(v.bytes)
			got = map[string]string{"request": fmt.Sprint(request), "bytes": fmt.Sprint(n)}
		case "env":
			var name, value string
			name, value, err = DecodeEnv(v.bytes)
			got = map[string]string{"name": name, "value": value}
		case "release", "free", "bye", "kept", "batch", "mailbox", "mail":
			var value uint32
			value, err = DecodePair(v.bytes)
			for name := range v.fields {
				got[name] = fmt.Sprint(value)
			}
		case "submit":
			var m Submit
			err = DecodeSubmit(v.bytes, &m)
			dims, splits := []string{}, []string{}
			for i := range m.NumDims() {
				dims = append(dims, fmt.Sprint(m.Dim(i)))
			}
			for i := range m.NumSplits() {
				splits = append(splits, fmt.Sprint(m.Split(i)))
			}
			got = map[string]string{"handle": fmt.Sprint(m.Handle), "kind": fmt.Sprint(uint8(m.Kind)), "dtype": fmt.Sprint(uint8(m.Type)),
				"op": fmt.Sprint(uint8(m.Op) | uint8(m.Coding)<<4), "root": fmt.Sprint(m.Root), "group": fmt.Sprint(m.Group),
				"in_region": fmt.Sprint(m.In.Region), "in_offset": fmt.Sprint(m.In.Offset), "in_bytes": fmt.Sprint(m.In.Bytes),
				"out_region": fmt.Sprint(m.Out.Region), "out_offset": fmt.Sprint(m.Out.Offset), "out_bytes": fmt.Sprint(m.Out.Bytes),
				"pre": fmt.Sprintf("%.1f", m.Pre), "post": fmt.Sprintf("%.1f", m.Post),
				"dims": list(dims), "splits": list(splits), "name": string(m.Name)}
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
			w := v.welcome()
			got = AppendWelcome(nil, &w)
		case "region":
			got = AppendRegion(nil, uint32(v.int("request")), uint32(v.int("region")), int64(v.int("bytes")))
		case "fail":
			got = AppendFail(nil, uint32(v.int("number")), uint32(v.int("what")), collective.Code(v.int("code")), v.text("text"))
		case "complete":
			got = AppendComplete(nil, &Completion{Handle: uint32(v.int("handle")), Code: collective.Code(v.int("code")), Region: uint32(v.int("region")),
				Offset: v.int("offset"), Bytes: v.int("bytes"), RegionBytes: int64(v.int("region_bytes")), FD: v.int("flags") == 1,
				Dims: v.ints("dims"), Rows: v.ints("rows"), Text: v.text("text")})
		case "goodbye":
			got = AppendPair(nil, TypeGoodbye, 0)
		case "gone":
			got = AppendGone(nil, collective.Code(v.int("code")), v.text("text"))
		case "completed":
			for i, handle := range v.ints("handles") {
				took := time.Duration(v.ints("flags")[i]>>1) * time.Microsecond
				got = AppendCompleted(got, &Completion{Handle: uint32(handle), Took: took})
			}
		case "mailbox_answer":
			got = AppendMailbox(nil, int64(v.int("bytes")))
		case "changed":
			got = AppendChanged(nil, v.int("flags")&2 != 0, v.int("flags")&1 != 0, int64(v.int("stamp")))
		default:
			continue
		}
		seen++
		if !bytes.Equal(got, v.bytes) {
			t.Errorf("encode %s %v:\n got %x\nwant %x", v.kind, v.fields, got, v.bytes)
		}
	}
	if seen != 12 {
		t.Errorf("%d vectors of the daemon, want 12", seen)
	}
}

// TestReusedBuffer encodes into a buffer full of old bytes: nothing of them may show.
func TestReusedBuffer(t *testing.T) {
	dirty := bytes.Repeat([]byte{0xAA}, 4096)
	encoders := map[string]func(b []byte) []byte{
		"welcome":  func(b []byte) []byte { return AppendWelcome(b, &Welcome{Epoch: 1, Size: 2, Slots: true, Job: "j"}) },
		"region":   func(b []byte) []byte { return AppendRegion(b, 1, 2, 3) },
		"fail":     func(b []byte) []byte { return AppendFail(b, 1, 2, 3, "t") },
		"complete": func(b []byte) []byte { return AppendComplete(b, &Completion{Dims: []int{1}, Text: "t"}) },
		"goodbye":  func(b []byte) []byte { return AppendPair(b, TypeGoodbye, 0) },
		"gone":     func(b []byte) []byte { return AppendGone(b, 1, "t") },
		"changed":  func(b []byte) []byte { return AppendChanged(b, true, false, 7) },
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
		if h, err := DecodeHello(b); err == nil && (h.Process < 0 || len(b) != 64) {
			t.Errorf("accepted hello %x", b)
		}
		if _, _, err := DecodeAlloc(b); err == nil && len(b) != 16 {
			t.Errorf("accepted alloc %x", b)
		}
		if name, value, err := DecodeEnv(b); err == nil && (name == "" || 5+len(name)+len(value) != len(b)) {
			t.Errorf("accepted variable %x", b)
		}
		if _, err := DecodePair(b); err == nil && len(b) != PairLen {
			t.Errorf("accepted pair %x", b)
		}
		var m Submit
		if err := DecodeSubmit(b, &m); err != nil {
			if !errors.Is(err, ErrMalformed) {
				t.Errorf("error %v does not say malformed", err)
			}
			return
		}
		if submitDims+len(m.Dims)+len(m.Splits)+len(m.Name) != len(b) || len(m.Dims) > 8*MaxDims {
			t.Errorf("accepted %d bytes as %d+%d+%d", len(b), len(m.Dims), len(m.Splits), len(m.Name))
		}
	})
}

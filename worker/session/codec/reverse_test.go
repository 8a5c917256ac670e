package codec

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"testing"

	"gorun/collective"
	"gorun/collective/kernel"
)

// TestGoldenOfRank encodes what a rank sends and decodes what the daemon sends: the reverse of the daemon's tests.
func TestGoldenOfRank(t *testing.T) {
	number := func(v vector, name string) uint32 { return uint32(v.int(name)) }
	piece := func(v vector, side string) Piece {
		return Piece{number(v, side+"_region"), uint64(v.int(side + "_offset")), uint64(v.int(side + "_bytes"))}
	}
	seen := map[string]bool{}
	for _, v := range vectors(t) {
		var sent []byte
		var err error
		ok := true
		switch v.kind {
		case "hello":
			h := Hello{Version: Version, Process: v.int("rank"), PID: v.int("pid")}
			hex.Decode(h.Token[:], []byte(v.fields["token"]))
			sent = AppendHello(nil, h)
		case "alloc":
			sent = AppendAlloc(nil, number(v, "request"), uint64(v.int("bytes")))
		case "release":
			sent = AppendPair(nil, TypeRelease, number(v, "handle"))
		case "bye":
			if sent = AppendPair(nil, TypeBye, 0); le.Uint32(v.bytes) != TypeBye {
				continue // the daemon's
			}
		case "submit":
			pre, _ := strconv.ParseFloat(v.fields["pre"], 64)
			post, _ := strconv.ParseFloat(v.fields["post"], 64)
			sent = AppendSubmit(nil, &Call{Handle: number(v, "handle"), Kind: collective.Kind(v.int("kind")), Type: kernel.Type(v.int("dtype")),
				Op: kernel.Op(v.int("op") & 15), Coding: kernel.Coding(v.int("op") >> 4), Root: int32(v.int("root")), Group: number(v, "group"),
				In: piece(v, "in"), Out: piece(v, "out"), Pre: pre, Post: post}, v.ints("dims"), v.ints("splits"), v.fields["name"])
		case "welcome":
			var w Welcome
			w, err = DecodeWelcome(v.bytes)
			ok = w == v.welcome()
		case "region":
			var request, region uint32
			var size int
			request, region, size, err = DecodeRegion(v.bytes)
			ok = request == number(v, "request") && region == number(v, "region") && size == v.int("bytes")
		case "fail":
			handle, what, why, failure := DecodeFail(v.bytes)
			ok = failure == nil && handle == number(v, "number") && what == number(v, "what") && int(why.Code) == v.int("code") &&
				why.Text == v.text("text")
		case "complete":
			var c Completion
			err = DecodeComplete(v.bytes, &c)
			ok = c.Handle == number(v, "handle") && int(c.Code) == v.int("code") && c.Region == number(v, "region") && c.Offset == v.int("offset") &&
				c.Bytes == v.int("bytes") && c.FD == (v.int("flags") == fdComes) && slices.Equal(c.Dims, v.ints("dims")) && slices.Equal(c.Rows, v.ints("rows")) &&
				c.Text == v.text("text")
		default:
			continue
		}
		seen[v.kind] = true
		if err != nil || !ok {
			t.Errorf("%s %v: decoded otherwise, %v", v.kind, v.fields, err)
		}
		if sent != nil && !bytes.Equal(sent, v.bytes) {
			t.Errorf("%s %v: sent\n%x, want\n%x", v.kind, v.fields, sent, v.bytes)
		}
	}
	for _, kind := range []string{"hello", "alloc", "release", "bye", "submit", "welcome", "region", "fail", "complete"} {
		if !seen[kind] {
			t.Errorf("no vector of %s was of use", kind)
		}
	}
}

// FuzzFromDaemon wants decoders that never fault and never promise memory that a region does not have.
func FuzzFromDaemon(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add(v.bytes)
	}
	f.Add(AppendShow(nil, 3, 1, 1<<20))
	f.Add(AppendHide(nil, 3, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		var c Completion
		errs := []error{DecodeComplete(b, &c)}
		if errs[0] == nil && (c.Offset < 0 || c.Region != NoRegion && (c.Bytes < 0 || int64(c.Offset)+int64(c.Bytes) > c.RegionBytes)) {
			t.Errorf("Completion %+v", c)
		}
		_, err := DecodeWelcome(b)
		errs = append(errs, err)
		_, _, _, err = DecodeRegion(b)
		errs = append(errs, err)
		_, _, _, err = DecodeFail(b)
		errs = append(errs, err)
		Piece, _, size, err := DecodeShow(b)
		if err == nil && (Piece < 0 || Piece >= MaxSlotRanks || size < 0) {
			t.Errorf("%d bytes of rank %d", size, Piece)
		}
		errs = append(errs, err)
		_, _, err = DecodeHide(b)
		errs = append(errs, err)
		_, err = DecodeGone(b)
		for _, err := range append(errs, err) {
			if err != nil && !errors.Is(err, ErrMalformed) {
				t.Errorf("%v is not of its kind", err)
			}
		}
	})
}

package session

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
		p := Piece{Offset: v.int(side + "_offset"), Bytes: v.int(side + "_bytes")}
		if n := number(v, side+"_region"); n != noRegion {
			p.Memory = &Memory{region: n}
		}
		return p
	}
	seen := map[string]bool{}
	for _, v := range vectors(t) {
		var sent []byte
		var err error
		ok := true
		switch v.kind {
		case "hello":
			h := hello{version: version, process: v.int("rank"), pid: v.int("pid")}
			hex.Decode(h.token[:], []byte(v.fields["token"]))
			sent = appendHello(nil, h)
		case "alloc":
			sent = appendAlloc(nil, number(v, "request"), uint64(v.int("bytes")))
		case "release":
			sent = appendPair(nil, typeRelease, number(v, "handle"))
		case "bye":
			if sent = appendPair(nil, typeBye, 0); le.Uint32(v.bytes) != typeBye {
				continue // the daemon's
			}
		case "submit":
			pre, _ := strconv.ParseFloat(v.fields["pre"], 64)
			post, _ := strconv.ParseFloat(v.fields["post"], 64)
			sent = appendSubmit(nil, number(v, "handle"), &Operation{Kind: collective.Kind(v.int("kind")), Type: kernel.Type(v.int("dtype")),
				Op: kernel.Op(v.int("op") & 15), Coding: kernel.Coding(v.int("op") >> 4), Root: v.int("root"), Group: number(v, "group"), In: piece(v, "in"), Out: piece(v, "out"),
				Shape: v.ints("dims"), Splits: v.ints("splits"), Pre: pre, Post: post, Name: v.fields["name"]})
		case "welcome":
			var w Welcome
			w, err = decodeWelcome(v.bytes)
			ok = w == Welcome{Epoch: number(v, "epoch"), Rank: v.int("rank"), Size: v.int("size"), LocalRank: v.int("local_rank"),
				LocalSize: v.int("local_size"), Hosts: v.int("hosts")}
		case "region":
			var request, region uint32
			var size int
			request, region, size, err = decodeRegion(v.bytes)
			ok = request == number(v, "request") && region == number(v, "region") && size == v.int("bytes")
		case "fail":
			handle, what, why, failure := decodeFail(v.bytes)
			ok = failure == nil && handle == number(v, "number") && what == number(v, "what") && int(why.Code) == v.int("code") &&
				why.Text == v.text("text")
		case "complete":
			var c completion
			err = decodeComplete(v.bytes, &c)
			ok = c.handle == number(v, "handle") && int(c.code) == v.int("code") && c.region == number(v, "region") && c.offset == v.int("offset") &&
				c.bytes == v.int("bytes") && c.fd == (v.int("flags") == fdComes) && slices.Equal(c.dims, v.ints("dims")) && slices.Equal(c.rows, v.ints("rows")) &&
				c.text == v.text("text")
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
	f.Add(appendShow(nil, 3, 1, 1<<20))
	f.Add(appendHide(nil, 3, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		var c completion
		errs := []error{decodeComplete(b, &c)}
		if errs[0] == nil && (c.offset < 0 || c.region != noRegion && (c.bytes < 0 || int64(c.offset)+int64(c.bytes) > c.regionBytes)) {
			t.Errorf("completion %+v", c)
		}
		_, err := decodeWelcome(b)
		errs = append(errs, err)
		_, _, _, err = decodeRegion(b)
		errs = append(errs, err)
		_, _, _, err = decodeFail(b)
		errs = append(errs, err)
		place, _, size, err := decodeShow(b)
		if err == nil && (place < 0 || place >= maxSlotRanks || size < 0) {
			t.Errorf("%d bytes of rank %d", size, place)
		}
		errs = append(errs, err)
		_, _, err = decodeHide(b)
		errs = append(errs, err)
		_, err = decodeGone(b)
		for _, err := range append(errs, err) {
			if err != nil && !errors.Is(err, errMalformed) {
				t.Errorf("%v is not of its kind", err)
			}
		}
	})
}

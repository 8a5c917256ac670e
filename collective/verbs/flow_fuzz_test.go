package verbs

import (
	"encoding/binary"
	"testing"
)

// FuzzFlow: whatever a peer reports and a device completes, the flow refuses it, or keeps to its rings and its queue.
// Each command takes six bytes: what happens, and a number.
func FuzzFlow(f *testing.F) {
	f.Add([]byte{0, 9, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 5, 9, 0, 0, 1, 3, 2, 0, 0, 0, 0})
	f.Add([]byte{2, 255, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, script []byte) {
		fl := newFlow(Size{Ring: 64, Depth: minDepth})
		for ; len(script) >= 6; script = script[6:] {
			number := binary.LittleEndian.Uint32(script[2:])
			var err error
			switch script[0] % 4 {
			case 0: // write
				if _, room := fl.room(); room > 0 {
					fl.send(1 + int(number)%room)
				}
			case 1: // a write completes
				err = fl.complete(Completion{})
			case 2: // a message arrives
				err = fl.complete(Completion{Receive: true, Bytes: int(int8(script[1])), Imm: number})
			case 3: // read
				if _, n := fl.readable(); n > 0 {
					fl.consume(1 + int(number)%n)
				}
			}
			if err != nil {
				return
			}
			if fl.mustReport() {
				fl.send(0)
			}
			at, room := fl.room()
			from, n := fl.readable()
			if at < 0 || room < 0 || at+room > fl.size || from < 0 || n < 0 || from+n > fl.size || fl.sent-fl.done > uint64(fl.depth) {
				t.Fatalf("room %d at %d, readable %d at %d: %+v", room, at, n, from, fl)
			}
		}
	})
}

// FuzzOffer: an offer that a peer sends is refused, or means what it says.
func FuzzOffer(f *testing.F) {
	good := offer{Have: true, RoCE2: true, RingBytes: 1 << 20, Depth: 64, End: End{Number: 3, MTU: 1024}}.encode()
	f.Add(good[:])
	f.Add(make([]byte, offerSize))
	f.Fuzz(func(t *testing.T, text []byte) {
		var b [offerSize]byte
		copy(b[:], text)
		var o offer
		if o.decode(&b) != nil {
			return
		}
		if again := o.encode(); b[4] < 2 && b[5] < 2 && again != b {
			t.Errorf("%x is read as %x", b, again)
		}
	})
}

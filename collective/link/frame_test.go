package link

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

func sample() frame {
	return frame{
		Header: Header{Kind: Data, Flags: FlagAckNow, Step: 0x1122, Epoch: 0x33445566, Op: 0x778899aabbccddee, Gen: 0x0a0b0c0d, Length: 0x010203, Offset: 0x1020304050607080},
		seq:    0x0102030405060708, ack: 0x1112131415161718, sack: 0x21222324,
	}
}

func TestFrameBytes(t *testing.T) {
	f := sample()
	var b [headerSize]byte
	f.encode(&b)
	const want = "0101221166554433" + "0d0c0b0a03020100" + "eeddccbbaa998877" + "8070605040302010" +
		"0807060504030201" + "1817161514131211" + "24232221"
	if got := hex.EncodeToString(b[:]); got != want {
		t.Errorf("got %s", got)
	}
	var back frame
	if err := back.decode(&b); err != nil || back != f {
		t.Errorf("%v, %+v", err, back)
	}
}

func TestFrameLimits(t *testing.T) {
	for _, c := range []struct {
		kind   SegmentKind
		length uint32
		ok     bool
	}{
		{Data, 0, true}, {Data, MaxPayload, true}, {Data, MaxPayload + 1, false},
		{Control, MaxPayload, true}, {Control, 1 << 31, false},
		{kindAck, 0, true}, {kindAck, mapBytes, true}, {kindAck, mapBytes + 1, false},
		{0, 0, false}, {3, 0, false}, {0x7f, 0, false}, {0x81, 0, false}, {0xff, 0, false},
	} {
		f := frame{Header: Header{Kind: c.kind, Length: c.length, Flags: flagChecked}}
		var b [headerSize]byte
		f.encode(&b)
		if err := f.decode(&b); (err == nil) != c.ok || err != nil && !errors.Is(err, errFrame) {
			t.Errorf("kind %d of %d bytes: %v", c.kind, c.length, err)
		}
	}
}

// TestFrameMustBeChecked: what ranks or engines believe is not taken without a tag.
func TestFrameMustBeChecked(t *testing.T) {
	for _, c := range []struct {
		Header
		ok bool
	}{
		{Header{Kind: Data, Length: alwaysChecked + 1}, true}, {Header{Kind: Data, Length: alwaysChecked}, false},
		{Header{Kind: Data, Length: MaxPayload, Flags: FlagCheck}, false}, {Header{Kind: Data}, true},
		{Header{Kind: Control, Length: MaxPayload}, false}, {Header{Kind: kindAck, Length: 1}, false},
	} {
		var b [headerSize]byte
		(&frame{Header: c.Header}).encode(&b)
		var f frame
		if err := f.decode(&b); (err == nil) != c.ok || err != nil && !errors.Is(err, errFrame) {
			t.Errorf("%+v: %v", c.Header, err)
		}
	}
}

func FuzzFrame(f *testing.F) {
	s := sample()
	var b [headerSize]byte
	s.encode(&b)
	f.Add(b[:])
	f.Add(make([]byte, headerSize))
	f.Fuzz(func(t *testing.T, in []byte) {
		var b, back [headerSize]byte
		copy(b[:], in)
		var fr frame
		if fr.decode(&b) != nil {
			return
		}
		if fr.Length > MaxPayload {
			t.Errorf("length %d", fr.Length)
		}
		if fr.encode(&back); back != b {
			t.Errorf("%x became %x", b, back)
		}
	})
}

// pipe is a connection to a peer that has already sent everything it will send.
type pipe struct {
	net.Conn // nil
	from     io.Reader
	to       io.Writer
}

func (p pipe) Read(b []byte) (int, error)  { return p.from.Read(b) }
func (p pipe) Write(b []byte) (int, error) { return p.to.Write(b) }

func FuzzHandshake(f *testing.F) {
	key := make([]byte, 32)
	intro := introduction{Stream: 1, From: 2, To: 3}
	b := intro.encode()
	for form := range uint8(3) {
		f.Add(append(b[:], make([]byte, sha256.Size)...), form)
	}
	f.Add([]byte("GET / HTTP/1.0\r\n\r\n"), uint8(0))
	r := resume{generation: 3, base: 7, received: [mapBytes]byte{2}}
	f.Add(r.encode(), uint8(0))
	f.Fuzz(func(t *testing.T, said []byte, form uint8) {
		c := credentials{job: "job", key: key}
		switch form % 3 { // most inputs get past the checksums
		case 1: // as a challenge
			said = summed(said)
		case 2: // as an introduction and what follows it
			said = slices.Concat(summed(said[:min(introSize, len(said))]), summed(said[min(introSize, len(said)):]))
		}
		if _, _, err := c.welcome(pipe{from: bytes.NewReader(said), to: io.Discard}, func(*introduction) introduction { return introduction{From: 3} }); err == nil {
			t.Error("let a stranger in")
		}
		if _, _, err := c.meet(pipe{from: bytes.NewReader(said), to: io.Discard}, introduction{From: 3, To: 2}); err == nil {
			t.Error("followed a stranger")
		}
		var r resume
		if readResume(bytes.NewReader(said), &r) == nil {
			var again resume
			if b := r.encode(); readResume(bytes.NewReader(b), &again) != nil || again != r || len(b) > len(said) {
				t.Error("resume changed")
			}
		}
	})
}

// summed is a message as it is sent.
func summed(message []byte) []byte {
	var b bytes.Buffer
	writeMessage(&b, message)
	return b.Bytes()
}

// forged changes a message like someone who knows its form, not like a NIC that damages it.
func forged(change func(message []byte)) func([]byte) []byte {
	return func(p []byte) []byte {
		p = p[:len(p)-sumSize]
		change(p)
		return summed(p)
	}
}

// meetup runs both sides of the handshake against each other.
func meetup(dialer, acceptor credentials, hello introduction, answer introduction, tamper func([]byte) []byte) (dial, accept error) {
	a, b := net.Pipe()
	defer a.Close()
	for _, c := range []net.Conn{a, b} {
		c.SetDeadline(time.Now().Add(10 * time.Second))
	}
	accepted := make(chan error, 1)
	go func() {
		defer b.Close()
		_, _, err := acceptor.welcome(b, func(*introduction) introduction { return answer })
		accepted <- err
	}()
	_, _, dial = dialer.meet(pipe{a, a, writer(func(p []byte) (int, error) {
		n := len(p)
		if tamper != nil {
			p = tamper(bytes.Clone(p))
		}
		_, err := a.Write(p)
		return n, err
	})}, hello)
	a.Close()
	return dial, <-accepted
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

func TestHandshake(t *testing.T) {
	key, other := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	good := credentials{job: "job", key: key}
	hello, answer := introduction{From: 1, To: 2, Stream: 3}, introduction{From: 2}
	for name, c := range map[string]struct {
		dialer, acceptor credentials
		hello            introduction
		tamper           func([]byte) []byte
		dial, accept     error // nil: none
	}{
		"both right":       {good, good, hello, nil, nil, nil},
		"other key":        {credentials{job: "job", key: other}, good, hello, nil, ErrKey, io.EOF},
		"other job":        {credentials{job: "jo", key: key}, good, hello, nil, ErrKey, io.EOF},
		"other acceptor":   {good, credentials{job: "job2", key: key}, hello, nil, ErrKey, io.EOF},
		"other host":       {good, good, introduction{From: 1, To: 7, Stream: 3}, nil, errWrong, errWrong},
		"hello tampered":   {good, good, hello, forged(func(p []byte) { p[8]++ }), ErrKey, io.EOF},
		"version tampered": {good, good, hello, forged(func(p []byte) { p[4]++ }), io.EOF, errHello},
		"proof tampered": {good, good, hello, forged(func(p []byte) {
			if len(p) == sha256.Size {
				p[31] ^= 1
			}
		}), nil, ErrKey},
		"hello damaged": {good, good, hello, func(p []byte) []byte { p[8]++; return p }, io.EOF, errDamaged},
		"proof damaged": {good, good, hello, func(p []byte) []byte {
			if len(p) == sha256.Size+sumSize {
				p[31] ^= 1
			}
			return p
		}, nil, errDamaged},
	} {
		t.Run(name, func(t *testing.T) {
			dial, accept := meetup(c.dialer, c.acceptor, c.hello, answer, c.tamper)
			if !errors.Is(dial, c.dial) || !errors.Is(accept, c.accept) {
				t.Errorf("dialer: %v, want %v; acceptor: %v, want %v", dial, c.dial, accept, c.accept)
			}
		})
	}
}

// What a side proved cannot be used by someone else in the other role or on another connection.
func TestProofsCannotBeReused(t *testing.T) {
	c := credentials{job: "job", key: make([]byte, 32)}
	hello, challenge := introduction{From: 1}, introduction{From: 2}
	a, b := hello.encode(), challenge.encode()
	proof := c.proof(roleDial, &a, &b)
	if bytes.Equal(proof, c.proof(roleAccept, &a, &b)) {
		t.Error("roles are alike")
	}
	challenge.Public[0]++
	b = challenge.encode()
	if bytes.Equal(proof, c.proof(roleDial, &a, &b)) {
		t.Error("public keys do not count")
	}
}

// TestOtherProtocol: another protocol at either end is no damage, which would be blamed on a NIC.
func TestOtherProtocol(t *testing.T) {
	c := credentials{job: "job", key: make([]byte, 32)}
	other := func() pipe {
		return pipe{from: strings.NewReader("HTTP/1.1 400 Bad Request\r\n" + strings.Repeat("X-Padding: 0123456789\r\n", 10)), to: io.Discard}
	}
	if _, _, err := c.meet(other(), introduction{From: 3, To: 2}); !errors.Is(err, errHello) || errors.Is(err, errDamaged) {
		t.Errorf("dialed: %v", err)
	}
	if _, _, err := c.welcome(other(), func(*introduction) introduction { return introduction{From: 3} }); !errors.Is(err, errHello) || errors.Is(err, errDamaged) {
		t.Errorf("accepted: %v", err)
	}
}

// TestResume: what a side has received is short as long as there are no gaps, so that it passes wherever the rest of the
// handshake does.
func TestResume(t *testing.T) {
	r := resume{generation: 3, base: 7, received: [mapBytes]byte{2, 0, 1}}
	b := r.encode()
	if len(b) != resumeSize+3 {
		t.Errorf("%d bytes", len(b))
	}
	var back resume
	if err := readResume(bytes.NewReader(b), &back); err != nil || back != r {
		t.Errorf("%v, %+v", err, back)
	}
}

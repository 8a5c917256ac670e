package gossip

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"gorun/collective/admit/admittest"
	"gorun/contrib/must"
)

const label = "gorun/hostile"

var hostileKey = bytes.Repeat([]byte{7}, 32)

func member(t testing.TB, id int) *Gossip {
	t.Helper()
	g, err := Listen(Config{ID: id, Job: strings.TrimPrefix(label, "gorun/"), Key: hostileKey, Bind: "127.0.0.1", Advertise: "127.0.0.1",
		Log: slog.New(slog.DiscardHandler)})
	must.Do(t, err)
	g.config.CIDRsAllowed = []net.IPNet{{IP: net.IPv4(127, 0, 0, 0).To4(), Mask: net.CIDRMask(8, 32)}}
	must.Do(t, g.Open())
	t.Cleanup(func() { must.Report(t, g.Close()) })
	return g
}

// sealed is a message as members send it, with the key.
func sealed(t testing.TB, plain []byte, vsn byte, stream bool) []byte {
	t.Helper()
	block, err := aes.NewCipher(hostileKey)
	must.Do(t, err)
	gcm, err := cipher.NewGCM(block)
	must.Do(t, err)
	var header []byte
	if stream {
		header = binary.BigEndian.AppendUint32([]byte{encrypted}, uint32(1+12+len(plain)+16))
	}
	nonce := make([]byte, 12)
	out := append(labelHeader(), header...)
	out = append(append(out, vsn), nonce...)
	return gcm.Seal(out, nonce, plain, append(header, label...))
}

func labelHeader() []byte { return append([]byte{244, byte(len(label))}, label...) }

// send sends a stream as a member does, and waits until the other side has closed it.
func send(t testing.TB, g *Gossip, message []byte) {
	t.Helper()
	raw := must.Dial(t, g.Addr())
	conn, err := g.transport.introduce(t.Context(), raw)
	must.Do(t, err)
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	conn.Write(message)
	raw.(*net.TCPConn).CloseWrite()
	io.Copy(io.Discard, raw)
}

// TestHostileStreams: whoever lacks the key takes no memory by large streams, and keeps no member out by idle ones, even
// if each is opened again that is closed. The attacker is a process of its own, whose memory does not count.
func TestHostileStreams(t *testing.T) {
	const attacked = "GORUN_TEST_ATTACKED"
	if addr := os.Getenv(attacked); addr != "" {
		large := append(labelHeader(), encrypted, 1, 64, 0, 0) // of 20 MiB
		admittest.Flood(t, addr, 500, string(append(large, make([]byte, 2<<20)...)))
		admittest.Flood(t, addr, 300, "")
		io.WriteString(os.Stdout, "\n")
		io.Copy(io.Discard, os.Stdin)
		return
	}
	a, b := member(t, 0), member(t, 1)
	taken := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.Sys
	}
	before := taken()
	attack := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHostileStreams$")
	attack.Env = append(os.Environ(), attacked+"="+a.Addr())
	until, err := attack.StdinPipe()
	must.Do(t, err)
	begun, err := attack.StdoutPipe()
	must.Do(t, err)
	must.Do(t, attack.Start())
	defer attack.Wait()
	defer until.Close()
	if _, err := begun.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	must.Do(t, b.Join(t.Context(), []string{a.Addr()}))
	again := time.NewTicker(time.Second / 2) // a message may be lost
	defer again.Stop()
	for size := 1 << 20; ; {
		if err := b.Send(0, make([]byte, size)); err != nil {
			t.Log(err)
		}
		select {
		case ev := <-a.Events():
			if ev.Kind == Message && len(ev.Message) == size {
				size = 0
			}
		case <-again.C:
		}
		if size == 0 || time.Since(began) > 20*time.Second {
			break
		}
	}
	if waited := time.Since(began); waited > 10*time.Second {
		t.Errorf("a member waited for %v", waited)
	}
	if grown := int64(taken() - before); grown > 32<<20 {
		t.Errorf("the member takes %d MiB more", grown>>20)
	} else {
		t.Logf("the member takes %d MiB more, another one waited for %v", grown>>20, time.Since(began))
	}
}

// TestHostileMessages: memberlist would panic on these, which only a holder of the key can make.
func TestHostileMessages(t *testing.T) {
	g := member(t, 0)
	padded := bytes.Repeat([]byte{16}, 16) // nothing, in the padding of former versions
	bad := append(bytes.Repeat([]byte{0}, 15), 200)
	for _, m := range [][]byte{sealed(t, nil, 1, true), sealed(t, padded, 0, true), sealed(t, bad, 0, true), labelHeader(), nil} {
		send(t, g, m)
	}
	conn, err := net.Dial("udp", g.Addr())
	must.Do(t, err)
	defer conn.Close()
	for _, m := range [][]byte{sealed(t, nil, 1, false), sealed(t, padded, 0, false), sealed(t, bad, 0, false), labelHeader(), {0}} {
		conn.Write(m)
	}
	must.Report(t, member(t, 1).Join(t.Context(), []string{g.Addr()}))
}

// FuzzGossip: whatever comes in a packet or a stream, of one who has the key or not, a member goes on.
func FuzzGossip(f *testing.F) {
	for _, stream := range []bool{false, true} {
		f.Add([]byte{}, byte(1), stream, true)
		f.Add([]byte{8, 0x81, 0xaa, 'U', 's', 'e', 'r', 'M', 's', 'g', 'L', 'e', 'n', 1, 'x'}, byte(1), stream, true) // user message
		f.Add([]byte{0, 0x82, 0xa5, 'S', 'e', 'q', 'N', 'o', 1, 0xa4, 'N', 'o', 'd', 'e', 0xa1, '0'}, byte(1), stream, true)
		f.Add([]byte{6, 0x83, 0xa5, 'N', 'o', 'd', 'e', 's', 1, 0xac, 'U', 's', 'e', 'r', 'S', 't', 'a', 't', 'e', 'L', 'e', 'n', 0,
			0xa4, 'J', 'o', 'i', 'n', 0xc3, 0x80}, byte(1), stream, true)
		f.Add([]byte{7, 2, 0, 1, 0, 1, 3, 4}, byte(1), stream, true)                                               // several in one
		f.Add([]byte{9, 0x82, 0xa4, 'A', 'l', 'g', 'o', 0, 0xa3, 'B', 'u', 'f', 0xa1, 'x'}, byte(1), stream, true) // compressed
		f.Add([]byte{12, 0, 0, 0, 0}, byte(1), stream, true)                                                       // with a checksum
		f.Add(append(labelHeader(), encrypted, 0, 0, 0, 29, 1), byte(1), stream, false)
	}
	g := member(f, 0)
	go func() {
		for range g.Events() {
		}
	}()
	conn, err := net.Dial("udp", g.Addr())
	must.Do(f, err)
	defer conn.Close()
	f.Fuzz(func(t *testing.T, text []byte, vsn byte, stream, key bool) {
		if key {
			text = sealed(t, text, vsn, stream)
		}
		if stream {
			send(t, g, text)
		} else {
			conn.Write(text)
		}
	})
}

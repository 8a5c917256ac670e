package step

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"gorun/collective/admit/admittest"
	"gorun/contrib/must"
)

// TestMain lets hosts give a launcher up soon.
func TestMain(m *testing.M) {
	timing.FirstConnection, timing.BrokenGrace = time.Second, 300*time.Millisecond
	os.Exit(m.Run())
}

// host serves as a host of a hub until the test ends, and returns how it ended.
func host(t *testing.T, h *Hub, name string) (ended chan error) {
	t.Helper()
	o, err := ReadOrder(bytes.NewReader(h.Order(name)))
	must.Do(t, err)
	if o.Host == "" {
		o.Host = "n1"
	}
	return served(t, o)
}

func served(t *testing.T, o Order) (ended chan error) {
	ctx, cancel := context.WithCancel(context.Background())
	ended = make(chan error, 1)
	var serving sync.WaitGroup
	serving.Go(func() {
		ended <- Serve(ctx, o, func(args []string) *exec.Cmd { return exec.Command(args[0], args[1:]...) })
	})
	t.Cleanup(func() { cancel(); serving.Wait() })
	return ended
}

func listen(t *testing.T) *Hub {
	t.Helper()
	h, err := Listen()
	must.Do(t, err)
	t.Cleanup(h.Close)
	return h
}

// shell runs a script on a host, with input, to its end.
func shell(t *testing.T, h *Hub, host, script, input string) (code int, stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s, err := h.Run(ctx, host, []string{"/bin/sh", "-c", script})
	must.Do(t, err)
	defer s.Close()
	var complaints []byte
	var reading sync.WaitGroup
	reading.Go(func() { complaints, _ = io.ReadAll(s.Stderr) })
	reading.Go(func() {
		io.WriteString(s.Stdin, input)
		s.Stdin.Close()
	})
	out, _ := io.ReadAll(s.Stdout)
	reading.Wait()
	code, err = s.Wait()
	return code, string(out), string(complaints), err
}

// TestRun: a command has its streams and its exit status, many times and at the same time.
func TestRun(t *testing.T) {
	h := listen(t)
	host(t, h, "")
	long := strings.Repeat("0123456789abcdef", 40_000) // many frames
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			code, out, complaints, err := shell(t, h, "n1", "cat; echo wrong >&2; exit 3", long)
			if code != 3 || err != nil || out != long || complaints != "wrong\n" {
				t.Errorf("code %d, error %v, %d bytes of %d, %q", code, err, len(out), len(long), complaints)
			}
		})
	}
	all.Wait()
	if code, _, _, err := shell(t, h, "n1", "kill -9 $$", ""); code != 137 || err != nil {
		t.Errorf("killed: code %d, %v", code, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	s, err := h.Run(ctx, "n1", []string{"/nonexistent/gorun"})
	must.Do(t, err)
	go io.Copy(io.Discard, s.Stdout)
	said, _ := io.ReadAll(s.Stderr)
	if code, err := s.Wait(); code != 127 || err != nil || !strings.Contains(string(said), "no such file") {
		t.Errorf("without the program: code %d, %v, %q", code, err, said)
	}
}

// TestNames: a host may call itself by less or more than the launcher does.
func TestNames(t *testing.T) {
	h := listen(t)
	h.Expect("n7.example.org")
	host(t, h, "n7")
	if _, out, _, _ := shell(t, h, "n7.example.org", "echo here", ""); out != "here\n" {
		t.Errorf("got %q", out)
	}
}

// TestEqualLabels: a host whose name fits several is let in as none of them, and says why.
func TestEqualLabels(t *testing.T) {
	h := listen(t)
	h.Expect("n1.a")
	h.Expect("n1.b")
	for _, name := range []string{"n1", "n1.c"} {
		err := <-host(t, h, name)
		if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), name+" fits n1.a and n1.b") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"n1.a", "n1.b"} {
		if absent, _ := h.Absent(name); !absent {
			t.Errorf("%s was let in", name)
		}
		host(t, h, name)
		if _, out, _, _ := shell(t, h, name, "echo here", ""); out != "here\n" {
			t.Errorf("%s: got %q", name, out)
		}
	}
}

// TestEarlyOutput: a host may send output as soon as its connection is taken, before it has its command line.
func TestEarlyOutput(t *testing.T) {
	h := listen(t)
	raw := must.Dial(t, h.listener.Addr().String())
	defer raw.Close()
	config, err := channel(h.key)
	must.Do(t, err)
	conn := tls.Client(raw, config)
	must.Do(t, writeLine(conn, greeting{"n1"}))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	c, err := h.take(ctx, "n1")
	must.Do(t, err)
	to := &framer{to: conn}
	to.send(output, []byte("early"))
	time.Sleep(50 * time.Millisecond) // in which the hub may read it; the test holds without
	var s *Session
	got := make(chan error, 1)
	go func() {
		var err error
		s, err = c.run(ctx, []string{"true"})
		got <- err
	}()
	out := make([]byte, 5)
	if _, err := io.ReadFull(c.out, out); err != nil || string(out) != "early" {
		t.Errorf("got %q, %v", out, err)
	}
	var next request
	must.Do(t, readLine(bufio.NewReaderSize(conn, maxLine), &next))
	to.send(started, nil)
	to.send(exited, binary.LittleEndian.AppendUint32(nil, 7))
	must.Do(t, <-got)
	defer s.Close()
	if code, err := s.Wait(); code != 7 || err != nil {
		t.Errorf("code %d, %v", code, err)
	}
}

// TestShortCommand: a command that has ended before anybody looks is a session too.
func TestShortCommand(t *testing.T) {
	for range 20 { // either end may be noticed first
		here, there := net.Pipe()
		c := newConn(here, bufio.NewReader(here))
		ended := make(chan error, 1)
		go func() {
			to := &framer{to: there}
			to.send(started, nil)
			to.send(exited, binary.LittleEndian.AppendUint32(nil, 7))
			_, err := io.Copy(io.Discard, there)
			ended <- err
		}()
		c.serve()
		s, err := c.run(t.Context(), []string{"true"})
		if err != nil || s == nil {
			t.Fatalf("got %v, %v", s, err)
		}
		if code, err := s.Wait(); code != 7 || err != nil {
			t.Errorf("code %d, %v", code, err)
		}
		s.Close()
		must.Report(t, <-ended)
	}
}

// counted counts how often a connection is closed.
type counted struct {
	net.Conn
	closed int
}

func (c *counted) Close() error {
	c.closed++
	return c.Conn.Close()
}

// TestGreetingFails: a connection that does not take the greeting does not stay.
func TestGreetingFails(t *testing.T) {
	here, there := net.Pipe()
	there.Close()
	conn := &counted{Conn: here}
	if err := (&server{}).greet(conn); err == nil || conn.closed != 1 {
		t.Errorf("%v, closed %d times", err, conn.closed)
	}
}

// TestCut: a session ends with its context, and its command sees the end of its input.
func TestCut(t *testing.T) {
	h := listen(t)
	host(t, h, "")
	ctx, cancel := context.WithCancel(t.Context())
	file := t.TempDir() + "/ended"
	s, err := h.Run(ctx, "n1", []string{"/bin/sh", "-c", "cat >/dev/null; echo yes >" + file})
	must.Do(t, err)
	cancel()
	if _, err := s.Wait(); !errors.Is(err, ErrBroken) {
		t.Errorf("cut off: %v", err)
	}
	must.Soon(t, "the end of the command's input", func() bool {
		text, _ := os.ReadFile(file)
		return string(text) == "yes\n"
	})
}

// TestBreak: a step process whose connection breaks connects again.
func TestBreak(t *testing.T) {
	h := listen(t)
	host(t, h, "")
	shell(t, h, "n1", "true", "")
	must.Soon(t, "the connection is idle", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.hosts["n1"].idle) == 1 && h.hosts["n1"].conns == 1
	})
	h.mu.Lock()
	for c := range h.conns {
		c.Conn.Close()
	}
	h.mu.Unlock()
	if code, out, _, err := shell(t, h, "n1", "echo again", ""); code != 0 || out != "again\n" || err != nil {
		t.Errorf("code %d, %q, %v", code, out, err)
	}
}

// TestEnds: a step process ends when its launcher orders that, or is gone, but not while a child runs.
func TestEnds(t *testing.T) {
	for _, ordered := range []bool{true, false} {
		h := listen(t)
		ended := host(t, h, "")
		shell(t, h, "n1", "true", "")
		if absent, _ := h.Absent("n1"); absent {
			must.Soon(t, "the host is absent no more", func() bool { absent, _ := h.Absent("n1"); return !absent })
		}
		dir := t.TempDir()
		if !ordered {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if _, err := h.Run(ctx, "n1", []string{"/bin/sh", "-c", "while [ ! -e " + dir + "/end ]; do sleep 0.05; done"}); err != nil {
				t.Fatal(err)
			}
			must.Soon(t, "an idle connection", func() bool { h.mu.Lock(); defer h.mu.Unlock(); return len(h.hosts["n1"].idle) > 0 })
			h.listener.Close() // as the kernel does it for a launcher that was killed
			h.mu.Lock()
			for c := range h.conns {
				c.Conn.Close()
			}
			h.mu.Unlock()
			select {
			case err := <-ended:
				t.Fatalf("it ends before its child: %v", err)
			case <-time.After(3 * timing.BrokenGrace):
			}
			must.Do(t, os.WriteFile(dir+"/end", nil, 0o600))
		} else {
			h.Close()
		}
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("ordered %v: %v", ordered, err)
			}
		case <-time.After(20 * time.Second):
			t.Errorf("ordered %v: it does not end", ordered)
		}
	}
}

// TestKey: a host with another key is not let in, and gives up.
func TestKey(t *testing.T) {
	h := listen(t)
	o, err := ReadOrder(bytes.NewReader(h.Order("n1")))
	must.Do(t, err)
	o.Key = bytes.Repeat([]byte{1}, len(o.Key))
	if err := <-served(t, o); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), ErrKey.Error()) {
		t.Errorf("got %v", err)
	}
	if absent, after := h.Absent("n1"); !absent || after != 0 {
		t.Error("it was let in")
	}
}

// TestStranger: whoever does not hold the key is not read, whatever it sends.
func TestStranger(t *testing.T) {
	h := listen(t)
	conn := must.Dial(t, h.listener.Addr().String())
	defer conn.Close()
	conn.Write([]byte(`{"host":"n1"}` + "\n"))
	conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	if text, err := io.ReadAll(conn); errors.Is(err, os.ErrDeadlineExceeded) || strings.Contains(string(text), "run") {
		t.Errorf("got %q, %v", text, err)
	}
	if absent, _ := h.Absent("n1"); !absent {
		t.Error("it was let in")
	}
}

// TestHostileKeepNoHostOut: 600 idle connections, opened again as they are closed, keep no host out, and the hub ends at
// once.
func TestHostileKeepNoHostOut(t *testing.T) {
	h := listen(t)
	admittest.Flood(t, h.listener.Addr().String(), 600, "")
	began := time.Now()
	ended := host(t, h, "n1")
	if code, stdout, _, err := shell(t, h, "n1", "echo hello", ""); code != 0 || stdout != "hello\n" || err != nil {
		t.Errorf("got %d, %q, %v", code, stdout, err)
	}
	h.Close()
	if waited := time.Since(began); waited > 8*time.Second {
		t.Errorf("it took %v", waited)
	}
	must.Report(t, <-ended)
}

// TestOrder: a process reads its order, and nothing behind it.
func TestOrder(t *testing.T) {
	h := listen(t)
	in := io.MultiReader(bytes.NewReader(h.Order("n1")), strings.NewReader("the program"))
	o, err := ReadOrder(in)
	if err != nil || o.Host != "n1" || len(o.Addrs) == 0 || !bytes.Equal(o.Key, h.key) {
		t.Errorf("got %v, %v", o, err)
	}
	if rest, _ := io.ReadAll(in); string(rest) != "the program" {
		t.Errorf("behind it: %q", rest)
	}
	for _, text := range []string{"", "\n", "{}\n", `{"key":"AAAA","addrs":["a:1"]}` + "\n", "hello"} {
		if _, err := ReadOrder(strings.NewReader(text)); err == nil {
			t.Errorf("%q is an order", text)
		}
	}
}

// FuzzFrames: what a host sends is a frame or an error, of bounded size.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("s\x00\x00\x00\x00o\x02\x00\x00\x00hix\x04\x00\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte("o\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, text []byte) {
		in, buf := bytes.NewReader(text), make([]byte, maxFrame)
		var again bytes.Buffer
		to := &framer{to: &again}
		for {
			kind, data, err := readFrame(in, buf)
			if err != nil {
				break
			}
			must.Do(t, to.send(kind, data))
		}
		if !bytes.HasPrefix(text, again.Bytes()) {
			t.Errorf("%q became %q", text, again.Bytes())
		}
	})
}

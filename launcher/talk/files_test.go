package talk

import (
	"bytes"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gorun/rendezvous/wire"
)

// shelf holds files of one tree, and who takes them.
type shelf struct {
	name     string
	text     string // of its only file
	sources  chan string
	released chan bool
	offered  []string
}

func newShelf(name, text string) *shelf {
	return &shelf{name: name, text: text, sources: make(chan string, 1), released: make(chan bool, 10)}
}

func (s *shelf) Name() string { return s.name }

func (s *shelf) Tree() *wire.Tree {
	return &wire.Tree{Root: "/" + s.name, Files: []wire.TreeFile{{Path: "f", Size: int64(len(s.text))}, {Path: "l", Link: "f"}}}
}

func (s *shelf) Acquire(ctx context.Context) (string, func(bool), error) {
	select {
	case from := <-s.sources:
		return from, func(ok bool) { s.released <- ok }, nil
	case <-ctx.Done():
		return "", nil, context.Cause(ctx)
	}
}

func (s *shelf) Offer(address string) { s.offered = append(s.offered, address) }

func (s *shelf) Open([]int) io.ReadCloser { return io.NopCloser(strings.NewReader(s.text)) }

// stock has one environment, which is made for a while.
type stock struct {
	env   Files
	err   error
	takes time.Duration
}

func (s stock) Of(ctx context.Context, _ string, _ *wire.AskPython, busy func()) (Files, error) {
	for end := time.Now().Add(s.takes); time.Now().Before(end); time.Sleep(time.Second) {
		busy()
	}
	return s.env, s.err
}

func (s stock) Known() Files { return s.env }

type advice struct{ error }

func (advice) NextStep() string { return "do that" }

func newSupply(files Files, pythons Pythons) (*supply, func() wire.Message) {
	to := newMailbox()
	s := &supply{files: files, pythons: pythons, put: to.Put, tell: func(int64, int64) {}}
	var queued []wire.Message
	return s, func() (m wire.Message) {
		synctest.Wait()
		more, _ := to.Take()
		if queued = append(queued, more...); len(queued) > 0 {
			m, queued = queued[0], queued[1:]
		}
		return m
	}
}

// TestSupply: a daemon gets files in pieces, as many at once as it may, or the address of a host; a source that failed it is given back
// as broken.
func TestSupply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := strings.Repeat("0123456789abcdef", (pieces+2)*pieceSize/16)
		program := newShelf("program", all)
		s, next := newSupply(program, nil)
		program.sources <- ""
		s.ask(t.Context(), &wire.AskFiles{Missing: []int{0}})
		var got bytes.Buffer
		for piece := range pieces + 2 {
			if piece >= pieces {
				if m := next(); m != nil {
					t.Errorf("%T beyond %d pieces", m, pieces)
				}
				s.more()
			}
			f, is := next().(*wire.Files)
			if !is || f.Size != pieceSize || len(f.Data) >= f.Size {
				t.Fatalf("piece %d: %+v", piece, f)
			}
			if n, err := io.Copy(&got, flate.NewReader(bytes.NewReader(f.Data))); err != nil || n != int64(f.Size) {
				t.Errorf("piece %d: unpacked %d of %d bytes: %v", piece, n, f.Size, err)
			}
		}
		if got.String() != all {
			t.Errorf("got %d bytes, which are not the %d that were sent", got.Len(), len(all))
		}
		program.sources <- "host:1"
		s.ask(t.Context(), &wire.AskFiles{Missing: []int{0}})
		if f, is := next().(*wire.Files); !is || f.At != "host:1" || !<-program.released {
			t.Errorf("%+v, want a host", f)
		}
		s.ask(t.Context(), &wire.AskFiles{Missing: []int{0}, Not: "host:1"})
		if <-program.released {
			t.Error("a host that failed is not given back as broken")
		}
		s.end(false) // while it waits for a source
		for _, bad := range []*wire.AskFiles{{Missing: []int{1}}, {Missing: []int{2}}, {Missing: []int{-1}}, {Missing: []int{0}, Python: true}} {
			program.sources <- ""
			if s.ask(t.Context(), bad); next() != nil {
				t.Errorf("%+v is answered", bad)
			}
			<-program.sources
		}
	})
}

// TestSupplyPython: a daemon gets the name of the environment, then its files; a start that waits for it is not late.
func TestSupplyPython(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program, env := newShelf("program", "p"), newShelf("env", "packages")
		adopted, _ := newSupply(program, stock{env: env})
		if adopted.offer("host:0", true); len(env.offered) != 1 || len(program.offered) != 1 {
			t.Errorf("a host that had all from another launcher offers %q and %q", program.offered, env.offered)
		}
		env.offered, program.offered = nil, nil
		s, next := newSupply(program, stock{env: env, takes: time.Minute})
		began := time.Now()
		s.askPython(t.Context(), "h", &wire.AskPython{})
		time.Sleep(59 * time.Second)
		if moved := time.Unix(0, s.moved.Load()); time.Since(moved) > 2*time.Second || moved.Before(began) {
			t.Errorf("last sign of work %v after the beginning", moved.Sub(began))
		}
		time.Sleep(2 * time.Second)
		if m := next(); !reflect.DeepEqual(m, &wire.Python{Name: "env"}) {
			t.Errorf("%+v", m)
		}
		if s.offer("host:1", false); len(env.offered) != 1 {
			t.Errorf("a host that had the environment offers its files: %q", env.offered)
		}
		s.pythons = stock{env: env}
		s.askPython(t.Context(), "h", &wire.AskPython{Whole: true})
		if m := next(); !reflect.DeepEqual(m, &wire.Python{Name: "env", Tree: env.Tree()}) {
			t.Errorf("%+v", m)
		}
		env.sources <- ""
		s.ask(t.Context(), &wire.AskFiles{Missing: []int{0}, Python: true})
		if f, is := next().(*wire.Files); !is || string(f.Data) != "packages" {
			t.Errorf("%+v", f)
		}
		s.offer("host:2", true)
		if !reflect.DeepEqual(program.offered, env.offered[1:]) || len(env.offered) != 2 {
			t.Errorf("offered %q and %q", program.offered, env.offered)
		}
		s.pythons = stock{err: advice{errors.New("no")}}
		s.askPython(t.Context(), "h", &wire.AskPython{})
		if m := next(); !reflect.DeepEqual(m, &wire.Python{Error: "no", Hint: "do that"}) {
			t.Errorf("%+v", m)
		}
		s.end(true)
	})
}

// TestGive: a process that is to start a launcher gets files in as many pieces as there are, and then says what became of it.
func TestGive(t *testing.T) {
	program := newShelf("program", strings.Repeat("x", (pieces+1)*pieceSize))
	program.sources <- ""
	ours, theirs := net.Pipe()
	go func() {
		in, out := wire.NewReader(theirs), wire.NewWriter(theirs)
		out.Write(&wire.Alive{})
		out.Write(&wire.Log{Text: "is full"})
		out.Write(&wire.AskFiles{Missing: []int{0}})
		text := ""
		for range pieces + 1 {
			if m, err := in.Read(); err == nil {
				text += fmt.Sprint(m.(*wire.Files).Size, " ")
			}
			out.Write(&wire.MoreFiles{})
		}
		out.Write(&wire.Detached{Text: text})
		theirs.Close()
	}()
	said := ""
	note := func(format string, args ...any) { said += fmt.Sprintf(format, args...) }
	m, err := Give(t.Context(), "h", program, nil, note, wire.NewReader(ours), wire.NewWriter(ours))
	if d, is := m.(*wire.Detached); err != nil || !is || d.Text != strings.Repeat(fmt.Sprint(pieceSize, " "), pieces+1) || said != "gorun: h: is full" {
		t.Errorf("%+v, %v, said %q", m, err, said)
	}
	if m, err := Give(t.Context(), "h", program, nil, note, wire.NewReader(ours), wire.NewWriter(ours)); err == nil {
		t.Errorf("%+v after the end", m)
	}
}

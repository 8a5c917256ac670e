package talk

import (
	"bytes"
	"compress/flate"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"gorun/rendezvous/wire"
)

// Files are those of a job's tree, on the launcher's machine.
type Files interface {
	Tree() *wire.Tree
	Name() string // of the tree
	// Acquire waits for a host that has them, or returns "" for the launcher. The caller calls release afterwards.
	Acquire(ctx context.Context) (address string, release func(ok bool), err error)
	// Offer adds a host that has them, at host:port.
	Offer(address string)
	// Open returns what files hold, one after the other.
	Open(files []int) io.ReadCloser
}

// Pythons has the environment of Python that hosts get for a job.
type Pythons interface {
	// Of returns it for the Python of a host, and calls busy now and then while it is being made.
	Of(ctx context.Context, host string, ask *wire.AskPython, busy func()) (Files, error)
	// Known returns it, nil if it is not known yet or if there is none.
	Known() Files
}

const (
	pieceSize = 1 << 20
	// pieces is how many of them may be on their way.
	pieces = 4
	// What takes longer than tellAfter is told of, and then every tellEvery.
	tellAfter = 2 * time.Second
	tellEvery = 10 * time.Second
)

// Tell calls say now and then while something takes long, until stop is called.
func Tell(say func()) (stop func()) {
	over := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		for wait := tellAfter; ; wait = tellEvery {
			select {
			case <-time.After(wait):
				say()
			case <-over:
				return
			}
		}
	})
	return func() {
		close(over)
		telling.Wait()
	}
}

// supply gives a daemon the files that it asks for. The reading side of a conversation calls its methods.
type supply struct {
	files   Files
	pythons Pythons
	python  atomic.Pointer[Files] // the environment, nil if the daemon has not asked for it
	put     func(m wire.Message)  // sends it one
	tell    func(sent, of int64)  // how far it is
	moved   atomic.Int64          // when a piece was sent last, in nanoseconds

	room    chan struct{} // a token for each piece that may be sent
	cancel  context.CancelFunc
	release chan func(ok bool) // of the source that the daemon uses
	work    sync.WaitGroup
}

// Give gives files, and an environment of Python, to a process that asks for them before it starts a launcher of a job. Either may be
// nil. It returns the first message that is about neither.
func Give(ctx context.Context, host string, files Files, pythons Pythons, note func(format string, args ...any), in *wire.Reader, out *wire.Writer) (wire.Message, error) {
	s := supply{files: files, pythons: pythons, put: func(m wire.Message) { out.Write(m) }, tell: telling(host, note)}
	defer s.end(true)
	for {
		m, err := in.Read()
		if err != nil {
			return nil, err
		}
		switch m := m.(type) {
		case *wire.Alive:
		case *wire.Log:
			note("gorun: %s: %s", host, m.Text)
		default:
			if !s.take(ctx, host, m) {
				return m, nil
			}
		}
	}
}

// telling returns what tells the user how far a host is.
func telling(host string, note func(format string, args ...any)) func(sent, of int64) {
	return func(sent, of int64) { note("gorun: %s gets %d MB of files, has %d MB", host, of/1e6, sent/1e6) }
}

// take handles a message if it is about files or the environment.
func (s *supply) take(ctx context.Context, host string, m wire.Message) bool {
	switch m := m.(type) {
	case *wire.AskFiles:
		s.ask(ctx, m)
	case *wire.MoreFiles:
		s.more()
	case *wire.AskPython:
		s.askPython(ctx, host, m)
	default:
		return false
	}
	return true
}

// ask takes what a daemon lacks, and where it did not get it.
func (s *supply) ask(ctx context.Context, m *wire.AskFiles) {
	s.end(m.Not == "")
	files := s.files
	if m.Python {
		files = s.environment()
	}
	for _, i := range m.Missing {
		if files == nil || i < 0 || i >= len(files.Tree().Files) || files.Tree().Files[i].Link != "" {
			return
		}
	}
	ctx, s.cancel = context.WithCancel(ctx)
	s.room, s.release = make(chan struct{}, pieces), make(chan func(bool), 1)
	for range pieces {
		s.room <- struct{}{}
	}
	release, room := s.release, s.room
	s.work.Go(func() {
		address, left, err := files.Acquire(ctx)
		if err != nil {
			return
		}
		release <- left
		s.moved.Store(time.Now().UnixNano())
		if address != "" {
			s.put(&wire.Files{At: address})
			return
		}
		if err := s.send(ctx, files, m.Missing, room); err != nil {
			s.put(&wire.Files{Error: err.Error()})
		}
	})
}

// askPython has the environment made, and takes which Python a host has.
func (s *supply) askPython(ctx context.Context, host string, m *wire.AskPython) {
	s.end(true)
	if s.pythons == nil {
		return
	}
	ctx, s.cancel = context.WithCancel(ctx)
	s.work.Go(func() {
		files, err := s.pythons.Of(ctx, host, m, func() { s.moved.Store(time.Now().UnixNano()) })
		answer := &wire.Python{}
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			answer.Error = err.Error()
			if advice, is := errors.AsType[interface {
				error
				NextStep() string
			}](err); is {
				answer.Hint = advice.NextStep()
			}
		default:
			s.python.Store(&files)
			answer.Name = files.Name()
			if m.Whole {
				answer.Tree = files.Tree()
			}
		}
		s.put(answer)
	})
}

// offer has other hosts get files from this one.
func (s *supply) offer(address string, tree bool) {
	if tree {
		s.files.Offer(address)
	}
	env := s.environment()
	if env == nil && s.pythons != nil { // the daemon has asked another launcher
		env = s.pythons.Known()
	}
	if env != nil {
		env.Offer(address)
	}
}

func (s *supply) environment() Files {
	if env := s.python.Load(); env != nil {
		return *env
	}
	return nil
}

// more takes the daemon's word that it has a piece, or some bytes from another host.
func (s *supply) more() {
	s.moved.Store(time.Now().UnixNano())
	if s.room == nil {
		return
	}
	select {
	case s.room <- struct{}{}:
	default: // more than it got
	}
}

// end ends what is under way.
func (s *supply) end(ok bool) {
	if s.cancel == nil {
		return
	}
	s.cancel()
	s.work.Wait()
	select { // nothing comes of an environment that was asked for
	case release := <-s.release:
		release(ok)
	default:
	}
	s.cancel = nil
}

func (s *supply) send(ctx context.Context, all Files, files []int, room <-chan struct{}) error {
	from, of := all.Open(files), all.Tree().Bytes(files)
	defer from.Close()
	var sent atomic.Int64
	defer Tell(func() { s.tell(sent.Load(), of) })()
	for {
		select {
		case <-room:
		case <-ctx.Done():
			return nil
		}
		piece := make([]byte, pieceSize)
		n, err := io.ReadFull(from, piece)
		if n > 0 {
			sent.Add(int64(n))
			s.put(&wire.Files{Data: packed(piece[:n]), Size: n})
			s.moved.Store(time.Now().UnixNano())
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// packed returns a piece by deflate if that is shorter.
func packed(piece []byte) []byte {
	var to bytes.Buffer
	w, _ := flate.NewWriter(&to, flate.BestSpeed) // the level is known
	w.Write(piece)
	if w.Close(); to.Len() < len(piece) {
		return to.Bytes()
	}
	return piece
}

// Supplied reports whether the daemon has got files of the tree within a time.
func (c *Conversation) Supplied(within time.Duration) bool {
	return time.Since(time.Unix(0, c.supply.moved.Load())) < within
}

package shipped

import (
	"bytes"
	"compress/flate"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"gorun/rendezvous/wire"
)

const (
	// mostPiece bounds a piece that is unpacked.
	mostPiece = 4 << 20
	// signInterval is how often a daemon shows the launcher that it is there while it waits for files.
	signInterval = 500 * time.Millisecond
)

var errOver = errors.New("the job ended before all files were here")

// Get gets the missing files of a tree from the launcher, or from a host that the launcher names, by the key that Serve has
// there. in is what the launcher sends; if it stops the job, that is an error.
func (s *Store) Get(ctx context.Context, t *wire.Tree, key []byte, in <-chan wire.Message, out *wire.Writer) error {
	sign := time.NewTicker(signInterval)
	defer sign.Stop()
	return s.get(ctx, t, false, key, &launcher{over: ctx.Done(), in: in, out: out, sign: sign.C})
}

// get gets the missing files of a tree: that of an environment of Python, or that of the program.
func (s *Store) get(ctx context.Context, t *wire.Tree, python bool, key []byte, l *launcher) error {
	if err := s.Begin(t); err != nil {
		return err
	}
	for not := ""; ; {
		missing := s.Missing(t)
		if len(missing) == 0 {
			return nil
		}
		if t.Bytes(missing) == 0 {
			if err := s.Take(t, missing, strings.NewReader("")); err != nil {
				return err
			}
			continue
		}
		if err := l.out.Write(&wire.AskFiles{Missing: missing, Not: not, Python: python}); err != nil {
			return err
		}
		first, err := l.files()
		if err != nil {
			return err
		}
		if not = first.At; not != "" {
			err = l.meanwhile(ctx, func(ctx context.Context) error {
				err := s.fromHost(ctx, not, key, t, missing, python, &l.came)
				if _, own := errors.AsType[*localError](err); own {
					return err
				}
				return nil // it is asked for again
			})
		} else {
			l.piece = first
			err = s.Take(t, missing, l)
		}
		if err != nil {
			return err
		}
	}
}

// launcher reads the pieces of files that the launcher sends.
type launcher struct {
	over  <-chan struct{}
	came  atomic.Int64 // bytes that another host has sent
	in    <-chan wire.Message
	out   *wire.Writer
	sign  <-chan time.Time
	piece *wire.Files // not unpacked yet
	left  []byte
}

// meanwhile does something while the daemon shows the launcher that it is there.
func (l *launcher) meanwhile(ctx context.Context, do func(ctx context.Context) error) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan struct{})
	go func() {
		defer close(over)
		err = do(ctx)
	}()
	_, lost := l.next(over)
	cancel()
	<-over
	return errors.Join(lost, err)
}

// files waits for the next Files.
func (l *launcher) files() (*wire.Files, error) {
	m, err := l.next(nil)
	files, is := m.(*wire.Files)
	if err == nil && !is {
		err = fmt.Errorf("the launcher sent %T", m)
	}
	return files, err
}

// next waits for the next message about files or the environment, or until over is closed.
func (l *launcher) next(over <-chan struct{}) (wire.Message, error) {
	for told := l.came.Load(); ; {
		select {
		case <-over:
			return nil, nil
		case <-l.over:
			return nil, errOver
		case <-l.sign:
			if now := l.came.Load(); now > told {
				told = now
				l.out.Write(&wire.MoreFiles{}) // the start takes longer, and is not late
			} else {
				l.out.Write(&wire.Alive{})
			}
		case m, ok := <-l.in:
			if !ok {
				return nil, errOver
			}
			switch m := m.(type) {
			case *wire.Stop:
				return nil, errOver
			case *wire.Files:
				if m.Error != "" {
					return nil, errors.New(m.Error)
				}
				return m, nil
			case *wire.Python:
				return m, nil
			}
		}
	}
}

// Read implements io.Reader.
func (l *launcher) Read(b []byte) (n int, err error) {
	if len(l.left) == 0 {
		if l.piece == nil {
			if l.piece, err = l.files(); err != nil {
				return 0, err
			}
		}
		if l.left, err = unpack(l.piece); err != nil {
			return 0, err
		}
		l.piece = nil
		l.out.Write(&wire.MoreFiles{})
	}
	n = copy(b, l.left)
	l.left = l.left[n:]
	return n, nil
}

// unpack returns what a piece holds.
func unpack(f *wire.Files) ([]byte, error) {
	if f.Size <= 0 || f.Size > mostPiece || len(f.Data) > f.Size {
		return nil, fmt.Errorf("the launcher sent a piece of %d bytes in %d", f.Size, len(f.Data))
	}
	if len(f.Data) == f.Size {
		return f.Data, nil
	}
	data := make([]byte, f.Size)
	from := flate.NewReader(bytes.NewReader(f.Data))
	if _, err := io.ReadFull(from, data); err != nil {
		return nil, fmt.Errorf("unpack a piece: %w", err)
	}
	return data, nil
}

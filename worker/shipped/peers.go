package shipped

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"gorun/collective/admit"
	"gorun/rendezvous/keytls"
	"gorun/rendezvous/wire"
)

const (
	// Purpose is what the key of hosts that give each other files is derived for.
	Purpose = "gorun files 1"
	// dialLimit is how long another host may take to answer and show its key, and silence how long then to send or take some bytes.
	dialLimit = 5 * time.Second
	silence   = 30 * time.Second
)

var errKey = errors.New("the other side has another key")

func channel(key []byte) (*tls.Config, error) { return keytls.New(key, "gorun-files/1", errKey) }

// fromHost takes files from another host that serves them, and counts their bytes.
func (s *Store) fromHost(ctx context.Context, address string, key []byte, t *wire.Tree, files []int, python bool, came *atomic.Int64) error {
	config, err := channel(key)
	if err != nil {
		return err
	}
	dialing, cancel := context.WithTimeout(ctx, dialLimit)
	defer cancel()
	conn, err := (&tls.Dialer{Config: config}).DialContext(dialing, "tcp", address)
	if err != nil {
		return fmt.Errorf("dial %s: %w", address, err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	slow := patient{conn, came}
	if err := wire.NewWriter(slow).Write(&wire.AskFiles{Missing: files, Python: python}); err != nil {
		return err
	}
	return s.Take(t, files, slow)
}

// Serve gives hosts of the job files that are all here, those of a program and those of the environment of Python in a directory,
// until ctx ends and no one takes any more. There may be none of either.
func (s *Store) Serve(ctx context.Context, l net.Listener, program *wire.Tree, venv string, key []byte) error {
	config, err := channel(key)
	if err != nil {
		return err
	}
	python := sync.OnceValue(func() *wire.Tree { return ReadPython(venv) })
	var guests sync.WaitGroup
	defer guests.Wait()
	door := &admit.Door{Timeout: dialLimit}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		conn, err := l.Accept()
		if err != nil {
			return l.Close() // out of descriptors, if not closed: the launcher sends them then
		}
		guest := door.Enter(conn)
		guests.Go(func() {
			defer guest.Close()
			defer context.AfterFunc(ctx, func() { guest.Close() })()
			proven := tls.Server(guest, config)
			if proven.HandshakeContext(ctx) == nil {
				guest.Known()
				s.give(patient{proven, new(atomic.Int64)}, program, python)
			}
		})
	}
}

// give sends a guest the files that it asks for.
func (s *Store) give(guest io.ReadWriter, program *wire.Tree, python func() *wire.Tree) error {
	m, err := wire.NewReader(guest).Read()
	ask, is := m.(*wire.AskFiles)
	if err != nil || !is {
		return err
	}
	t := program
	if ask.Python {
		t = python()
	}
	for _, i := range ask.Missing {
		if t == nil || i < 0 || i >= len(t.Files) || t.Files[i].Link != "" {
			return errors.New("it asks for what is no file of the tree")
		}
		file, err := s.Open(t.Files[i])
		if err != nil {
			return err
		}
		_, err = io.Copy(guest, file)
		file.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

// patient is a connection on which bytes must move now and then.
type patient struct {
	net.Conn
	came *atomic.Int64 // bytes that were read
}

func (p patient) Read(b []byte) (int, error) {
	p.SetDeadline(time.Now().Add(silence))
	n, err := p.Conn.Read(b)
	p.came.Add(int64(n))
	return n, err
}

func (p patient) Write(b []byte) (int, error) {
	p.SetDeadline(time.Now().Add(silence))
	return p.Conn.Write(b)
}

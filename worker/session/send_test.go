package session

import (
	"errors"
	"io"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gorun/contrib/must"
	"gorun/worker/session/codec"
)

// TestReaderCutsItsOwnRank: a rank that leaves too much unread is cut off by whoever sends, also by its reader, which sends what
// waits before it sleeps.
func TestReaderCutsItsOwnRank(t *testing.T) {
	s := New(Config{})
	conn, _ := pair(t)
	x, err := newSession(s, conn)
	must.Do(t, err)
	x.batches, x.most = true, 0
	s.outbox.busy(x)
	x.mu.Lock()
	for err == nil {
		err = x.direct.send(make([]byte, 1024), nil)
	}
	if held := x.batchLocked(&codec.Completion{Region: codec.NoRegion}); err != unix.EAGAIN || !held {
		t.Errorf("the completion is held: %v; send: %v", held, err)
	}
	x.mu.Unlock()
	ended := make(chan error, 1)
	go func() {
		_, err := x.receive()
		ended <- err
	}()
	select {
	case err := <-ended:
		if !errors.Is(err, io.EOF) || !x.stopped {
			t.Errorf("receive: %v, stopped: %v", err, x.stopped)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("the reader hangs")
	}
}

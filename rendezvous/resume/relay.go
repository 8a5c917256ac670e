package resume

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrSuperseded ends the stream of a launcher in whose place another one has come.
var ErrSuperseded = errors.New("another launcher has taken over")

// Relay is what the daemon of a job reads and writes when one launcher may take over from another: the stream of the
// present one. What was written, and the former launcher has not acknowledged, goes to the next one, write by write; at
// most the write of which the former had a part is lost. One goroutine reads, and those that write take turns.
type Relay struct {
	mu      sync.Mutex
	stream  *Stream  // of the present launcher
	reading *Stream  // of the one whose words are read
	ends    []uint64 // of the writes to stream that may not be acknowledged, by its bytes
	written uint64   // bytes in whole writes

	writing sync.Mutex
}

// NewRelay returns one whose first launcher is still to come.
func NewRelay() *Relay {
	s := New()
	return &Relay{stream: s, reading: s}
}

func (r *Relay) current() *Stream {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stream
}

// Read implements io.Reader. After ErrSuperseded, Next goes on to the words of the next launcher.
func (r *Relay) Read(b []byte) (int, error) {
	r.mu.Lock()
	s := r.reading
	r.mu.Unlock()
	return s.Read(b)
}

// Next is true if there is another launcher after the one that was read.
func (r *Relay) Next() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	former := r.reading
	r.reading = r.stream
	return r.reading != former
}

// Fail ends the stream of the present launcher at once.
func (r *Relay) Fail(err error) { r.current().Fail(err) }

// Write implements io.Writer. A launcher gets b as a whole, or not at all.
func (r *Relay) Write(b []byte) (int, error) {
	r.writing.Lock()
	defer r.writing.Unlock()
	for {
		s := r.current()
		n, err := s.Write(b)
		if err != nil && !errors.Is(err, ErrSuperseded) {
			return n, err
		}
		if err == nil && r.wrote(s, len(b)) {
			return n, nil
		}
	}
}

// wrote notes a write, unless its stream was superseded meanwhile.
func (r *Relay) wrote(s *Stream, n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.stream != s {
		return false
	}
	r.written += uint64(n)
	base := s.acknowledgedUpTo()
	known, _ := slices.BinarySearch(r.ends, base)
	r.ends = append(slices.Delete(r.ends, 0, known), r.written)
	return true
}

// supersede begins the stream of another launcher.
func (r *Relay) supersede() {
	r.mu.Lock()
	defer r.mu.Unlock()
	former, next := r.stream, New()
	former.Fail(ErrSuperseded)
	base, out := former.unacknowledged()
	from := base // the first write of which nothing was acknowledged begins there
	if at, _ := slices.BinarySearch(r.ends, base); at < len(r.ends) && base > 0 && !r.whole(base) {
		from = r.ends[at]
	}
	var ends []uint64
	for _, end := range r.ends {
		if end > from {
			ends = append(ends, end-from)
		}
	}
	if from < r.written {
		next.out = slices.Clone(out[from-base : r.written-base])
	}
	r.written, r.ends, r.stream = uint64(len(next.out)), ends, next
}

// whole is true if so many bytes are whole writes.
func (r *Relay) whole(n uint64) bool {
	_, found := slices.BinarySearch(r.ends, n)
	return found
}

// Flush is Stream.Flush, for whoever is the launcher then.
func (r *Relay) Flush(patience time.Duration) bool {
	for {
		s := r.current()
		known := s.Flush(patience)
		if r.current() == s {
			return known
		}
	}
}

// Close is Stream.Close, for whoever is the launcher then.
func (r *Relay) Close(patience time.Duration) bool {
	for {
		s := r.current()
		known := s.Close(patience)
		if r.current() == s {
			return known
		}
	}
}

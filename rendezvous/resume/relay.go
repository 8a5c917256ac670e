package resume

import (
	"errors"
	"slices"
	"sync"
	"time"
)

// ErrSuperseded ends the stream of a launcher that another one has replaced.
var ErrSuperseded = errors.New("another launcher has taken over")

// Relay is the stream of a job's daemon when one launcher may take over from another. Whatever was written and the
// previous launcher did not acknowledge goes to the next one, write by write. At most one write is lost: the one the
// previous launcher received in part. One goroutine reads; writers take turns.
type Relay struct {
	mu      sync.Mutex
	stream  *ResumableStream // of the present launcher
	reading *ResumableStream // the stream that is being read
	ends    []uint64         // the ends of the writes to stream that may not be acknowledged, in bytes
	written uint64           // bytes in whole writes

	writing sync.Mutex
}

// NewRelay returns a relay that has no launcher yet.
func NewRelay() *Relay {
	s := New()
	return &Relay{stream: s, reading: s}
}

func (r *Relay) current() *ResumableStream {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stream
}

// Read implements io.Reader. After ErrSuperseded, Next switches to the next launcher.
func (r *Relay) Read(b []byte) (int, error) {
	r.mu.Lock()
	s := r.reading
	r.mu.Unlock()
	return s.Read(b)
}

// Next switches to the launcher that replaced the one being read, and reports whether there is one.
func (r *Relay) Next() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	former := r.reading
	r.reading = r.stream
	return r.reading != former
}

// Fail ends the stream of the present launcher at once.
func (r *Relay) Fail(err error) { r.current().Fail(err) }

// Write implements io.Writer. A launcher receives b as a whole or not at all.
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

// wrote records a write, unless its stream has been superseded.
func (r *Relay) wrote(s *ResumableStream, n int) bool {
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

// supersede starts the stream of another launcher.
func (r *Relay) supersede() {
	r.mu.Lock()
	defer r.mu.Unlock()
	former, next := r.stream, New()
	former.Fail(ErrSuperseded)
	base, out := former.unacknowledged()
	from := base // the start of the first write that was not acknowledged at all
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
		next.out = out[from-base : r.written-base]
	}
	r.written, r.ends, r.stream = uint64(len(next.out)), ends, next
}

// whole reports whether the first n bytes end with a write.
func (r *Relay) whole(n uint64) bool {
	_, found := slices.BinarySearch(r.ends, n)
	return found
}

// Flush calls ResumableStream.Flush for the present launcher, and again if another one takes over meanwhile.
func (r *Relay) Flush(timeout time.Duration) bool {
	return r.last(func(s *ResumableStream) bool { return s.Flush(timeout) })
}

// Close calls ResumableStream.Close for the present launcher, and again if another one takes over meanwhile.
func (r *Relay) Close(timeout time.Duration) bool {
	return r.last(func(s *ResumableStream) bool { return s.Close(timeout) })
}

// last returns what do returns for the last launcher.
func (r *Relay) last(do func(*ResumableStream) bool) bool {
	for {
		s := r.current()
		known := do(s)
		if r.current() == s {
			return known
		}
	}
}

package output

import (
	"bytes"
	"io"
	"unicode/utf8"
)

// End is how a line ended.
type End uint8

// Ends of a line.
const (
	LF   End = iota // line feed, or carriage return and line feed
	CR              // a carriage return alone: the next line replaces this one, as progress bars do
	Part            // not ended: the line continues, but is too long to be kept
	EOF             // not ended: the stream did
)

// Splitter cuts a stream of bytes into lines. The lines depend only on the bytes, not on the pieces in which they
// arrive. It looks at each byte twice and copies only lines that span pieces.
type Splitter struct {
	max int
	buf []byte // an unfinished line, at most max bytes
	cr  bool   // the line in buf ended with a carriage return; the next byte decides whether that was all
}

// MaxLine is the longest line that a Mux passes on whole: longer than what people print, figures and arrays as JSON
// included, and small enough to buffer for each of a host's ranks.
const MaxLine = 1 << 20

// kept is the buffer size that a Splitter keeps between lines.
const kept = 64 << 10

// NewSplitter returns a Splitter that passes lines longer than limit bytes on in parts. The limit is at least 4
// (utf8.UTFMax), and no part ends within a character.
func NewSplitter(limit int) *Splitter { return &Splitter{max: max(limit, utf8.UTFMax)} }

// Push takes the next piece and calls emit for each line it completes. The line excludes its end and is valid only
// during the call.
func (s *Splitter) Push(data []byte, emit func(line []byte, end End)) {
	feed := -1 // index of the next line feed, len(data) for none: each is searched for once
	for pos := 0; pos < len(data); {
		if s.cr {
			if data[pos] == '\n' {
				s.flush(emit, LF)
				pos++
			} else {
				s.flush(emit, CR)
			}
			continue
		}
		if feed < pos {
			feed = len(data)
			if i := bytes.IndexByte(data[pos:], '\n'); i >= 0 {
				feed = pos + i
			}
		}
		end, kind := feed, LF
		if i := bytes.IndexByte(data[pos:feed], '\r'); i >= 0 {
			end, kind = pos+i, CR
		}
		text := data[pos:end]
		pos = end + 1
		switch {
		case end == len(data):
			s.keep(text, emit)
		case kind == CR && (pos == len(data) || data[pos] == '\n'):
			s.keep(text, emit)
			s.cr = true
		case len(s.buf) == 0 && len(text) <= s.max:
			emit(text, kind)
		default:
			s.keep(text, emit)
			s.flush(emit, kind)
		}
	}
}

// Writer returns a writer that pushes what is written, and takes all of it.
func (s *Splitter) Writer(emit func(line []byte, end End)) io.Writer { return pusher{s, emit} }

type pusher struct {
	*Splitter
	emit func(line []byte, end End)
}

func (p pusher) Write(b []byte) (int, error) {
	p.Push(b, p.emit)
	return len(b), nil
}

// Close emits the unfinished line. The Splitter may be used again.
func (s *Splitter) Close(emit func(line []byte, end End)) {
	switch {
	case s.cr:
		s.flush(emit, CR)
	case len(s.buf) > 0:
		s.flush(emit, EOF)
	}
}

func (s *Splitter) flush(emit func([]byte, End), end End) {
	emit(s.buf, end)
	s.buf, s.cr = s.buf[:0], false
	if cap(s.buf) > kept {
		s.buf = nil
	}
}

// keep appends to the unfinished line and emits parts while it is too long.
func (s *Splitter) keep(text []byte, emit func([]byte, End)) {
	for len(s.buf)+len(text) > s.max {
		n := s.max - len(s.buf)
		s.buf = append(s.buf, text[:n]...)
		text = text[n:]
		whole := wholeRunes(s.buf)
		emit(s.buf[:whole], Part)
		s.buf = append(s.buf[:0], s.buf[whole:]...)
	}
	s.buf = append(s.buf, text...)
}

// wholeRunes returns the length of b without an incomplete character at its end. Invalid UTF-8 may be cut anywhere.
func wholeRunes(b []byte) int {
	for i := 1; i < utf8.UTFMax && i <= len(b); i++ {
		c := b[len(b)-i]
		if utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(b[len(b)-i:]) {
				return len(b) - i
			}
			break
		}
	}
	return len(b)
}

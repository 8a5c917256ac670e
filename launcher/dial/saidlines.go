package dial

import (
	"bytes"
	"strings"
)

// maxSaid bounds a line that saidLines keeps.
const maxSaid = 4 << 10

// saidLines takes lines as they are written. Longer ones than maxSaid come in parts.
type saidLines struct {
	take func(line string)
	held []byte
}

// Write implements io.Writer.
func (l *saidLines) Write(b []byte) (int, error) {
	n := len(b)
	for len(b) > 0 {
		part, rest, ends := bytes.Cut(b, []byte("\n"))
		if room := maxSaid - len(l.held); len(part) > room {
			part, rest, ends = b[:room], b[room:], true
		}
		l.held = append(l.held, part...)
		if b = rest; ends {
			l.next()
		}
	}
	return n, nil
}

// flush takes a last line that has no end.
func (l *saidLines) flush() {
	if len(l.held) > 0 {
		l.next()
	}
}

func (l *saidLines) next() {
	l.take(strings.TrimSuffix(string(l.held), "\r"))
	l.held = l.held[:0]
}

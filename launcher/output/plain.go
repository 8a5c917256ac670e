package output

import (
	"io"
	"os"
	"sync"

	"gorun/rendezvous/wire"
)

// maxBehind bounds the output of all ranks that waits for another rank to end its line.
const maxBehind = 16 << 20

// plain passes untagged output through unchanged.
//
// While only one rank writes, its output passes at once, prompts and binary data included. Once a second rank writes,
// each line stays whole: its beginning is kept until its end arrives. A line longer than MaxLine passes in pieces while
// the output of other ranks waits; the line is torn if more than maxBehind waits.
type plain struct {
	put func(s *stream, data []byte)

	mu      sync.Mutex
	wrote   bool // a rank has written
	rank    int  // the last rank that wrote
	several bool
	open    *stream   // the stream whose line is unfinished on the screen; may be nil
	cr      bool      // that line ends in a carriage return; the next byte decides whether it ends the line
	behind  []*stream // streams with output since that line started
	cut     *stream   // the stream that ended in the middle of the line on the screen
}

// share returns one plain for both streams if they have the same destination, and else one for each.
func share(stdout, stderr io.Writer, merged bool, put func(*stream, []byte)) map[wire.OutputStream]*plain {
	one, other := &plain{put: put}, &plain{put: put}
	if merged || sameFile(stdout, stderr) {
		other = one
	}
	return map[wire.OutputStream]*plain{wire.Stdout: one, wire.Stderr: other}
}

// sameFile reports whether a and b are one terminal, pipe or file.
func sameFile(a, b io.Writer) bool {
	var info [2]os.FileInfo
	for i, w := range []io.Writer{a, b} {
		f, ok := w.(*os.File)
		if !ok {
			return false
		}
		var err error
		if info[i], err = f.Stat(); err != nil {
			return false
		}
	}
	return os.SameFile(info[0], info[1])
}

// write takes output of s.
func (p *plain) write(s *stream, data []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.several = p.several || p.wrote && s.rank != p.rank
	p.wrote, p.rank, s.ended = true, s.rank, false
	if p.open == s && p.cr && data[0] != '\n' {
		p.open = nil
		p.release()
	}
	from := len(s.unfinished)
	s.unfinished = append(s.unfinished, data...)
	if p.blocks(s) {
		p.queue(s)
		return
	}
	p.pass(s, from)
	p.release()
}

// end flushes s, which has ended, perhaps without ending its last line.
func (p *plain) end(s *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(s.unfinished) == 0 && p.open != s {
		return
	}
	s.ended = true
	if p.blocks(s) {
		p.queue(s)
		return
	}
	p.pass(s, 0)
	p.release()
}

// blocks reports whether s must wait for another line to end. The two streams of a single rank do not wait for each
// other.
func (p *plain) blocks(s *stream) bool { return p.several && p.open != nil && p.open != s }

// queue makes s wait behind the open line, which is torn if too much waits.
func (p *plain) queue(s *stream) {
	if !s.behind {
		s.behind = true
		p.behind = append(p.behind, s)
	}
	waiting := 0
	for _, s := range p.behind {
		waiting += len(s.unfinished)
	}
	if waiting > maxBehind {
		p.open = nil
		p.release()
	}
}

// release passes the waiting output on, if the line before it has ended.
func (p *plain) release() {
	for p.open == nil && len(p.behind) > 0 {
		s := p.behind[0]
		p.behind, s.behind = p.behind[1:], false
		p.pass(s, 0)
	}
}

// pass writes as much of s as allowed. No line of s ends before the byte from.
func (p *plain) pass(s *stream, from int) {
	whole := wholeLines(s.unfinished, from)
	n := whole
	if rest := len(s.unfinished) - whole; !p.several || s.ended || rest > MaxLine || whole == 0 && p.open == s {
		n = len(s.unfinished)
	}
	torn := n > whole || n == 0 && p.open == s // the last line of s on the screen is unfinished
	if n > 0 {
		if p.cut != nil && p.cut != s {
			p.put(s, []byte{'\n'})
		}
		p.cut, p.open, p.cr = nil, nil, s.unfinished[n-1] == '\r'
		p.put(s, s.unfinished[:n])
		s.unfinished = append(s.unfinished[:0], s.unfinished[n:]...)
		if len(s.unfinished) == 0 && cap(s.unfinished) > kept {
			s.unfinished = nil
		}
	}
	switch {
	case torn && s.ended:
		p.open, p.cut = nil, s
	case torn:
		p.open = s
	}
}

// wholeLines returns the length of b without an unfinished last line. A carriage return ends a line too, unless a line
// feed follows. No line ends before the byte from.
func wholeLines(b []byte, from int) int {
	for i := len(b) - 1; i >= max(from-1, 0); i-- {
		if b[i] == '\n' || b[i] == '\r' && i+1 < len(b) {
			return i + 1
		}
	}
	return 0
}

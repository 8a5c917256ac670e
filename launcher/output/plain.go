package output

import (
	"io"
	"os"
	"sync"
)

// maxBehind bounds what waits for another rank to end its line, of all ranks together.
const maxBehind = 16 << 20

// plain passes untagged output on without changing a byte.
//
// As long as one rank writes, all that it writes passes at once, prompts and binary data included. Once a second one writes,
// each line stays whole: its beginning is kept until its end is there. A line longer than MaxLine passes in pieces, and what
// others write waits behind it; the line is torn if more than maxBehind waits.
type plain struct {
	put func(s *stream, data []byte)

	mu      sync.Mutex
	wrote   bool // some rank has written
	rank    int  // the last one that did
	several bool
	open    *stream   // whose line is unfinished on the screen, nil for none
	cr      bool      // that line ends in a carriage return; the next byte tells whether it ends the line
	behind  []*stream // have written since that line began
	cut     *stream   // ended in the middle of the line that is on the screen
}

// share returns one plain for both streams if they end up in the same place, and else one for each.
func share(stdout, stderr io.Writer, merged bool, put func(*stream, []byte)) map[Stream]*plain {
	one, other := &plain{put: put}, &plain{put: put}
	if merged || sameFile(stdout, stderr) {
		other = one
	}
	return map[Stream]*plain{Stdout: one, Stderr: other}
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

// write takes what s wrote.
func (p *plain) write(s *stream, data []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.several = p.several || p.wrote && s.rank != p.rank
	p.wrote, p.rank, s.ended = true, s.rank, false
	if p.open == s && p.cr && data[0] != '\n' {
		p.open = nil
		p.release()
	}
	from := len(s.begun)
	s.begun = append(s.begun, data...)
	if p.blocks(s) {
		p.queue(s)
		return
	}
	p.pass(s, from)
	p.release()
}

// end takes the end of s, whose last line may have none.
func (p *plain) end(s *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(s.begun) == 0 && p.open != s {
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

// blocks reports whether s waits until another line ends. The two streams of an only rank do not wait for each other.
func (p *plain) blocks(s *stream) bool { return p.several && p.open != nil && p.open != s }

// queue has s wait behind the open line, which is torn if too much waits.
func (p *plain) queue(s *stream) {
	if !s.behind {
		s.behind = true
		p.behind = append(p.behind, s)
	}
	waiting := 0
	for _, s := range p.behind {
		waiting += len(s.begun)
	}
	if waiting > maxBehind {
		p.open = nil
		p.release()
	}
}

// release lets those pass that wait, if the line before them has ended.
func (p *plain) release() {
	for p.open == nil && len(p.behind) > 0 {
		s := p.behind[0]
		p.behind, s.behind = p.behind[1:], false
		p.pass(s, 0)
	}
}

// pass puts as much of s on the screen as may be there. Before the byte from no line of s ends.
func (p *plain) pass(s *stream, from int) {
	whole := wholeLines(s.begun, from)
	n := whole
	if rest := len(s.begun) - whole; !p.several || s.ended || rest > MaxLine || whole == 0 && p.open == s {
		n = len(s.begun)
	}
	torn := n > whole || n == 0 && p.open == s // the last line of s on the screen is unfinished
	if n > 0 {
		if p.cut != nil && p.cut != s {
			p.put(s, []byte{'\n'})
		}
		p.cut, p.open, p.cr = nil, nil, s.begun[n-1] == '\r'
		p.put(s, s.begun[:n])
		s.begun = append(s.begun[:0], s.begun[n:]...)
		if len(s.begun) == 0 && cap(s.begun) > kept {
			s.begun = nil
		}
	}
	switch {
	case torn && s.ended:
		p.open, p.cut = nil, s
	case torn:
		p.open = s
	}
}

// wholeLines returns the length of b without its last line if that has not ended. A carriage return ends a line too, unless a
// line feed follows. Before the byte from no line ends.
func wholeLines(b []byte, from int) int {
	for i := len(b) - 1; i >= max(from-1, 0); i-- {
		if b[i] == '\n' || b[i] == '\r' && i+1 < len(b) {
			return i + 1
		}
	}
	return 0
}

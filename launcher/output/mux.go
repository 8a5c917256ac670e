package output

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"gorun/rendezvous/wire"
)

// Config determines where output goes and how it looks.
type Config struct {
	Ranks          int
	Stdout, Stderr io.Writer
	// Tag precedes each line. Without it no byte is changed: the output of a single rank passes through as it is,
	// prompts and progress bars included, and the lines of several ranks stay whole.
	Tag Tag
	// Show selects the ranks whose lines are shown; nil for all. Files and tails are kept for every rank.
	Show func(rank int) bool
	// Merge shows standard error among standard output.
	Merge bool
	// Color gives each rank's tag a colour, for a terminal.
	Color bool
	// JSON writes every line, note and Event as a JSON object on a line of standard output, for programs. Then
	// there are no tags, timestamps or status line.
	JSON bool
	Host func(rank int) string // for JSON; may be nil
	// Timestamp puts the time before the tag.
	Timestamp bool
	Now       func() time.Time // for Timestamp and Refresh; nil for time.Now
	// Refresh is the least time between two versions of a line that its rank keeps replacing with carriage returns.
	// With 0 every version is a line. The last version is always shown.
	Refresh time.Duration
	// Status enables the status line, for a standard error that is a terminal.
	Status bool
	// Dir, if given, receives each rank's unmodified output: Dir/rank.<rank>/stdout and stderr.
	Dir string
	// Divert returns the file that receives a stream instead of the terminal, "" for none; several streams may share
	// one. Lines there are untagged unless TagDiverted is true. Divert is called once for each stream.
	Divert      func(rank int, name wire.OutputStream) string
	TagDiverted bool
}

// Mux merges the output of many ranks. Several goroutines may use it, but only one at a time for each rank and stream.
//
// A byte is copied twice: into its batch of tagged lines, and into the queue of the screen.
type Mux struct {
	cfg    Config
	screen *screen
	plain  map[wire.OutputStream]*plain // for untagged output, nil where lines are tagged

	mu      sync.Mutex
	started bool // a rank has written, so there is no status line any more
	paused  int  // how many callers use the terminal themselves
	status  string

	known    sync.RWMutex
	streams  map[key]*stream
	diverted map[string]diversion // by file
}

// diversion is a file that replaces the terminal.
type diversion struct {
	file  *os.File
	plain *plain
}

type key struct {
	rank   int
	stream wire.OutputStream
}

// stream is one of a rank's two streams.
type stream struct {
	mu     sync.Mutex
	rank   int
	name   wire.OutputStream
	hidden bool
	to     io.Writer
	tag    string
	lines  *Splitter
	tail   *tail // of standard error
	file   *os.File
	batch  []byte // tagged lines of one piece
	held   []byte // the latest version of a progress line, not shown yet
	isHeld bool
	shown  time.Time // when a version was last shown
	err    error     // of the file
	plain  *plain    // passes output through; nil if lines are tagged

	// These belong to plain and its lock.
	unfinished []byte // an unfinished line, and output that waits for another stream to end its line
	behind     bool
	ended      bool // the rank has ended
}

// New opens the files and starts the Mux. An error names the file that could not be created.
func New(cfg Config) (*Mux, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	m := &Mux{cfg: cfg, streams: map[key]*stream{}, diverted: map[string]diversion{}}
	if cfg.Tag == nil && !cfg.Timestamp && !cfg.JSON {
		m.plain = share(cfg.Stdout, cfg.Stderr, cfg.Merge, m.put)
	}
	for rank := range cfg.Ranks {
		if err := m.add(rank); err != nil {
			return nil, errors.Join(err, m.closeFiles())
		}
	}
	m.screen = newScreen(cfg.Stderr)
	return m, nil
}

// add creates the streams of a rank.
func (m *Mux) add(rank int) error {
	for _, name := range []wire.OutputStream{wire.Stdout, wire.Stderr} {
		s := &stream{rank: rank, name: name, to: m.cfg.Stdout, lines: NewSplitter(MaxLine)}
		if name == wire.Stderr {
			s.tail = &tail{}
			if !m.cfg.Merge && !m.cfg.JSON {
				s.to = m.cfg.Stderr
			}
		}
		s.hidden, s.plain = m.cfg.Show != nil && !m.cfg.Show(rank), m.plain[name]
		if err := m.divert(s); err != nil {
			return err
		}
		s.tag = m.tag(s, "")
		m.streams[key{rank, name}] = s
		if m.cfg.Dir == "" {
			continue
		}
		var err error
		dir := fmt.Sprintf("rank.%0*d", len(fmt.Sprint(max(m.cfg.Ranks-1, 0))), rank) // as Horovod, with as many digits as the highest rank has
		if s.file, err = create(filepath.Join(m.cfg.Dir, dir, name.String())); err != nil {
			return err
		}
	}
	return nil
}

// divert redirects a stream to a file, if configured.
func (m *Mux) divert(s *stream) error {
	path := ""
	if m.cfg.Divert != nil {
		path = m.cfg.Divert(s.rank, s.name)
	}
	if path == "" {
		return nil
	}
	to, ok := m.diverted[path]
	if !ok {
		file, err := create(path)
		if err != nil {
			return err
		}
		to = diversion{file, &plain{put: m.put}}
		m.diverted[path] = to
	}
	s.to, s.plain, s.hidden = to.file, to.plain, false
	if m.cfg.TagDiverted {
		s.plain = nil
	}
	return nil
}

// put writes data of a stream to its destination.
func (m *Mux) put(s *stream, data []byte) { m.screen.put(s.to, data) }

// Add adds a rank that was not there at the start.
func (m *Mux) Add(rank int) error {
	m.known.Lock()
	defer m.known.Unlock()
	if m.streams[key{rank, wire.Stdout}] != nil {
		return nil
	}
	return m.add(rank)
}

// SetSpare marks the lines of a rank as those of a spare, from here on, or no longer.
func (m *Mux) SetSpare(rank int, spare bool) {
	before := ""
	if spare {
		before = "spare "
	}
	for _, name := range []wire.OutputStream{wire.Stdout, wire.Stderr} {
		if s := m.stream(rank, name); s != nil {
			s.mu.Lock()
			s.tag = m.tag(s, before)
			s.mu.Unlock()
		}
	}
}

// tag returns what precedes the lines of a stream.
func (m *Mux) tag(s *stream, before string) string {
	if m.cfg.Tag == nil {
		return ""
	}
	tag := before + m.cfg.Tag(s.rank, s.name)
	if m.cfg.Color {
		tag = paint(s.rank, tag)
	}
	return tag
}

// stream returns one of a rank's streams, nil if there is no such rank.
func (m *Mux) stream(rank int, name wire.OutputStream) *stream {
	m.known.RLock()
	defer m.known.RUnlock()
	return m.streams[key{rank, name}]
}

// create creates an output file and its directory.
func create(file string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
		return nil, fmt.Errorf("make output directory: %w", err)
	}
	f, err := os.Create(file)
	if err != nil {
		return nil, fmt.Errorf("make output file: %w", err)
	}
	return f, nil
}

// Write takes output of a rank, in pieces of any size. It ignores unknown ranks and streams. It waits while much is
// queued for the terminal, and holds no lock meanwhile: no other method waits for the terminal but Pause and Finish.
func (m *Mux) Write(rank int, name wire.OutputStream, data []byte) {
	s := m.stream(rank, name)
	if s == nil || len(data) == 0 {
		return
	}
	m.begin()
	m.take(s, data)
	m.screen.wait()
}

func (m *Mux) take(s *stream, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.file != nil && s.err == nil {
		if _, err := s.file.Write(data); err != nil {
			s.err = fmt.Errorf("write output file: %w", err)
			m.Note("gorun: %v; the file of rank %d stays as it is from here on", s.err, s.rank)
		}
	}
	s.lines.Push(data, func(line []byte, end End) { m.line(s, line, end) })
	if s.plain != nil && !s.hidden {
		s.plain.write(s, data)
	}
	m.send(s)
}

// Close passes on a rank's unfinished lines. A restarted rank may write again.
func (m *Mux) Close(rank int) {
	for _, name := range []wire.OutputStream{wire.Stdout, wire.Stderr} {
		s := m.stream(rank, name)
		if s == nil {
			continue
		}
		s.mu.Lock()
		s.lines.Close(func(line []byte, end End) { m.line(s, line, end) })
		if s.isHeld {
			m.show(s, s.held, CR)
		}
		if s.plain != nil && !s.hidden {
			s.plain.end(s)
		}
		m.send(s)
		s.mu.Unlock()
	}
}

// Tail returns the last lines of a rank's standard error.
func (m *Mux) Tail(rank int) []string {
	s := m.stream(rank, wire.Stderr)
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.tail.lines)
}

// Note prints a line from gorun itself to standard error, between the ranks' lines. It keeps the line's indentation.
func (m *Mux) Note(format string, args ...any) {
	text := clean(strings.TrimRight(fmt.Sprintf(format, args...), " \t\r\n"))
	if m.cfg.JSON {
		m.Event(NoteEvent{"note", text})
		return
	}
	m.screen.put(m.cfg.Stderr, []byte(text+"\n"))
}

// Status draws a status line, if enabled and no rank has written yet. Notes appear above it.
func (m *Mux) Status(text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.status = Printable(text)
	m.drawStatus()
}

// drawStatus needs the lock.
func (m *Mux) drawStatus() {
	if m.cfg.Status && !m.cfg.JSON && !m.started && m.paused == 0 {
		m.screen.setStatus(m.status)
	}
}

// Pause erases the status line until resume is called, while the caller asks the user a question at the terminal.
func (m *Mux) Pause() (resume func()) {
	m.mu.Lock()
	m.paused++
	m.mu.Unlock()
	m.screen.clearStatus()
	return func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.paused--
		m.drawStatus()
	}
}

// begin erases the status line for good.
func (m *Mux) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.started {
		m.started = true
		m.screen.setStatus("")
	}
}

// Finish passes on all unfinished lines and waits until everything is written. If ctx ends first, it gives up a blocked
// terminal. Afterwards the Mux accepts no more output.
func (m *Mux) Finish(ctx context.Context) error {
	stop := context.AfterFunc(ctx, m.screen.abandon)
	defer stop()
	m.known.RLock()
	ranks := map[int]bool{}
	for k := range m.streams {
		ranks[k.rank] = true
	}
	m.known.RUnlock()
	for _, rank := range slices.Sorted(maps.Keys(ranks)) {
		m.Close(rank)
	}
	return errors.Join(m.screen.finish(ctx), m.closeFiles())
}

// Hurry lets calls of Write return at once from now on. What a terminal does not take in time is lost.
func (m *Mux) Hurry() { m.screen.hurry() }

// Taken returns how many bytes the terminal has taken.
func (m *Mux) Taken() int {
	m.screen.mu.Lock()
	defer m.screen.mu.Unlock()
	return m.screen.taken
}

func (m *Mux) closeFiles() error {
	var errs []error
	for _, s := range m.streams {
		s.mu.Lock()
		if s.file != nil {
			errs = append(errs, s.err, s.file.Close())
			s.file = nil
		}
		s.mu.Unlock()
	}
	for _, to := range m.diverted {
		errs = append(errs, to.file.Close())
	}
	clear(m.diverted)
	return errors.Join(errs...)
}

// line handles one line of s.
func (m *Mux) line(s *stream, line []byte, end End) {
	if s.tail != nil {
		s.tail.add(line, end)
	}
	if s.hidden || s.plain != nil {
		return
	}
	if end != CR {
		s.isHeld = false // replaced, as it would be on a terminal
		m.show(s, line, end)
		return
	}
	switch {
	case len(line) == 0: // progress bars begin with a carriage return
	case m.cfg.Refresh == 0, m.cfg.Now().Sub(s.shown) >= m.cfg.Refresh:
		m.show(s, line, end)
	default:
		s.held, s.isHeld = append(s.held[:0], line...), true
	}
}

// show adds a line to the batch of s.
func (m *Mux) show(s *stream, line []byte, end End) {
	if m.cfg.JSON {
		s.batch = append(s.batch, m.object(s, line, end)...)
	} else {
		if m.cfg.Timestamp {
			s.batch = m.cfg.Now().AppendFormat(s.batch, time.ANSIC)
		}
		s.batch = append(s.batch, s.tag...)
		s.batch = append(s.batch, line...)
		s.batch = append(s.batch, '\n')
	}
	if end == CR {
		s.isHeld = false
		if m.cfg.Refresh > 0 {
			s.shown = m.cfg.Now()
		}
	}
}

func (m *Mux) send(s *stream) {
	m.screen.put(s.to, s.batch)
	s.batch = s.batch[:0]
	if cap(s.batch) > 4*MaxLine { // after one large piece
		s.batch = nil
	}
}

// colors are the ANSI colours that are readable on dark and bright backgrounds: cyan, green, yellow, blue, magenta,
// red.
var colors = [...]int{36, 32, 33, 34, 35, 31}

// paint colours a rank's tag.
func paint(rank int, tag string) string {
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", colors[rank%len(colors)], tag)
}

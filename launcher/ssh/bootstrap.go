package ssh

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Bootstrap runs in one session, in stages:
//
//  1. The launcher sends the command of script.go. The host's shell answers RUN (found in the cache and started), NEED
//   (send it), AGAIN (that place did not work, try another?) or FAIL. The answer is a line of standard output that
//   starts with a marker and a nonce, so that whatever login files print before is not mistaken for it.
//  2. On NEED the launcher sends the length of the upload and the upload, and nothing more until the next marker, so the
//   shell's tools may read ahead without taking bytes meant for the program. NEED also names the directory. Instead
//   of a length the launcher may send 0 when another login has filled the same directory meanwhile (see places.go). If
//   that fails, the shell sends NEED once more, without a name, and gets the upload. The upload is gzip where the host
//   has gunzip, unless "raw" follows the length. While the launcher waits for another login it sends "wait" now and
//   then, as a shell that receives nothing exits.
//  3. After RUN, standard input and output belong to the program.
//
// Cached: one round trip after login, two processes on the host (sh, uname). Uncached: one more round trip and the
// binary, compressed once per launch unless the host is near, through the channel's 2 MiB window, so at most 2 MiB per
// round trip.

const (
	marker = "gorun-bootstrap"

	// maxNoise bounds what login files may print before the marker.
	maxNoise = 1 << 20

	// hostTimeout is how long the host's side of an upload waits for a line from the launcher or more of the binary. A
	// launcher that has to wait for another login before it can send reports that every waitEvery.
	hostTimeout = 30 * time.Second
	waitEvery   = 5 * time.Second

	// outcomeLimit is how long a failed command may take to exit and report why.
	outcomeLimit = 5 * time.Second
	maxTail      = 16 << 10
)

// Binary is the program to run on the host.
type Binary struct {
	SHA256   string // in hex; names it in the host's cache
	Size     int64
	Platform string // output of `uname -sm` where it runs, such as "Linux x86_64"; "" = anywhere
	// Open returns the contents that SHA256 describes, or fails.
	Open func() (io.ReadCloser, error)
}

// Bootstrap runs the program on the host with args, after making sure that it is in the cache there. It returns when
// the program has been started; see Start for the meaning of ctx. Arguments show in the host's process list: nothing
// secret belongs there. The error is an *Error.
func (c *Conn) Bootstrap(ctx context.Context, b Binary, args []string) (*Session, error) {
	nonce := newNonce()
	command, err := bootstrapCommand(nonce, b, c.client.hostTimeout, args)
	if err != nil {
		return nil, &Error{Host: c.host, Step: StepStart, Err: err}
	}
	defer c.watch()()
	s, err := c.Start(ctx, command)
	if err != nil {
		return nil, c.cause(err)
	}
	out := bufio.NewReaderSize(s.Stdout, 64<<10)
	s.Stdout = out
	came := make(chan struct{})
	first := sync.OnceFunc(func() { close(came) })
	if _, ours := c.transport.(builtin); ours {
		c.client.running.Go(func() { c.diagnose(came) })
	}
	waiting, hurry := context.WithCancel(ctx)
	defer hurry()
	up := &upload{client: c.client, binary: b, to: s.Stdin, abort: c.Close, first: first, near: func() bool { return c.client.near(c) }, ping: c.ping, ctx: waiting, filled: func(bool) {}}
	err = up.serve(out, nonce)
	if err == nil {
		up.settled(true)
		return s, nil
	}
	var failed *Error
	if !errors.As(err, &failed) {
		failed = s.explain(err, StepStart)
		if !up.marked && !errors.Is(failed, ErrBroken) {
			code, unknown := s.Wait()
			explainNoStart(failed, code, unknown)
		}
	}
	// The command may hold the session open, but its output is no longer read.
	c.Close()
	hurry()
	up.sending.Wait()
	up.settled(false)
	if code, err := s.Wait(); err == nil && code == 128+int(syscall.SIGKILL) {
		failed.Err = broken{failed.Err} // most likely the host has given up waiting
	}
	if ctx.Err() != nil {
		failed.Err, failed.Hint = context.Cause(ctx), ""
	}
	failed.Host = c.host
	return nil, c.cause(failed)
}

func newNonce() string {
	var b [8]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// upload answers the shell's requests until it sends RUN.
type upload struct {
	client *Client
	binary Binary
	to     io.Writer
	abort  func() error
	first  func() // called when there is a marker, or none will come
	marked bool   // there was one
	near   func() bool
	ping   func() bool     // returns once the host has consumed everything sent before; false if it cannot be asked
	ctx    context.Context // for waiting for other logins

	filled func(ok bool) // reports the result for the present directory

	sending sync.WaitGroup
	mu      sync.Mutex
	err     error
}

// serve reads markers. Sending runs concurrently, since the shell may fail in the middle of an upload.
func (u *upload) serve(out *bufio.Reader, nonce string) error {
	for {
		verb, detail, err := nextMarker(out, nonce)
		u.first()
		u.marked = u.marked || err == nil
		if err != nil {
			u.mu.Lock()
			defer u.mu.Unlock()
			if u.err != nil {
				return &Error{Step: StepUpload, Err: u.err}
			}
			return err
		}
		switch verb {
		case "RUN":
			u.sending.Wait()
			return nil
		case "NEED":
			u.sending.Wait() // for an earlier place: the shell has consumed all of it, or it would not ask again
			kind, place, named := strings.Cut(detail, " ")
			if named {
				u.settled(false)
				u.sending.Go(func() { u.provide(kind == "gz", place) })
				continue
			}
			u.sending.Go(func() { u.send(kind == "gz") })
		case "AGAIN": // that place did not work; the shell only checks that the launcher is alive
			u.sending.Wait()
			u.settled(false)
			if _, err := io.WriteString(u.to, nonce+"\n"); err != nil {
				return err
			}
		case "FAIL":
			return failure(detail)
		default:
			return &Error{Step: StepStart, Err: fmt.Errorf("unexpected answer %q", oneLine(verb))}
		}
	}
}

// settled reports the result to the logins that wait for this one. Nothing may be on its way to the host.
func (u *upload) settled(ok bool) {
	u.filled(ok)
	u.filled = func(bool) {}
}

// provide sends the binary to the host, unless another login has put it into the same directory meanwhile.
func (u *upload) provide(compressed bool, place string) {
	over := u.hold()
	there, filled, err := u.client.places.claim(u.ctx, u.binary.SHA256, place)
	over()
	if err != nil {
		return // serve reports the error
	}
	u.filled = filled
	if there {
		io.WriteString(u.to, "0\n") // the next marker shows whether it arrived
		return
	}
	u.send(compressed)
}

// hold sends the host a sign of life now and then, while there is nothing else to send.
func (u *upload) hold() (release func()) {
	over := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() {
		tick := time.NewTicker(u.client.waitEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				io.WriteString(u.to, "wait\n")
			case <-over:
				return
			}
		}
	})
	return func() {
		close(over)
		telling.Wait()
	}
}

// send writes the length and the bytes. If they cannot be read the session is aborted, as the shell would wait forever.
func (u *upload) send(compressed bool) {
	to := &sink{w: u.to}
	err := u.write(to, compressed)
	if err == nil || to.failed {
		return // the connection is broken, and serve gets the reason
	}
	u.mu.Lock()
	u.err = err
	u.mu.Unlock()
	u.abort()
}

func (u *upload) write(to io.Writer, compressed bool) error {
	plain := compressed && u.client.sendsPlain(u.near)
	if compressed && !plain {
		body, err := u.client.compress(u.binary)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(to, "%d\n", len(body)); err != nil {
			return err
		}
		_, err = to.Write(body)
		return err
	}
	in, err := u.binary.Open()
	if err != nil {
		return err
	}
	defer in.Close()
	if _, err := fmt.Fprintf(to, "%d raw\n", u.binary.Size); err != nil {
		return err
	}
	pace := func() {}
	if plain {
		pace = u.pacer()
	}
	for sent := int64(0); sent < u.binary.Size; {
		pace()
		n, err := io.CopyN(to, in, min(pieceSize, u.binary.Size-sent))
		sent += n
		if err == io.EOF {
			return fmt.Errorf("binary is %d bytes, not %d", sent, u.binary.Size)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pacer returns a function to call before each piece. It waits until the host has consumed all but the last piece.
func (u *upload) pacer() (pace func()) {
	taken := make(chan struct{}, 1)
	taken <- struct{}{}
	return func() {
		<-taken
		u.sending.Go(func() {
			u.ping()
			taken <- struct{}{}
		})
	}
}

// sink distinguishes failures to write from failures to read.
type sink struct {
	w      io.Writer
	failed bool
}

func (s *sink) Write(b []byte) (int, error) {
	n, err := s.w.Write(b)
	s.failed = s.failed || err != nil
	return n, err
}

// packed is the compressed binary, made for the first host that needs it.
type packed struct {
	once sync.Once
	body []byte
	err  error
}

const (
	// nearby is the greatest round-trip time within one network.
	nearby = 2 * time.Millisecond
	// plainUploads is how many uploads to nearby hosts are not compressed. For the first, gzip at 1 Gbit/s saves 80 ms
	// each and costs 250 ms here and 150 ms there. From then on it pays.
	plainUploads = 4
	// pieceSize is half of what is in flight during such an upload. sshd copies everything that its window of 2 MiB
	// allows into a buffer, which it reallocates for every 32 KiB of growth: 18 MB that arrived at once took 250 ms of
	// CPU. sshd answers a request only after it has consumed what came before.
	pieceSize = 128 << 10
)

// sendsPlain reports whether an upload is better not compressed.
func (c *Client) sendsPlain(near func() bool) bool {
	return c.plain.Load() < plainUploads && near() && c.plain.Add(1) <= plainUploads
}

// near measures whether the host is in the same network. Nothing may be in flight to it.
func (c *Conn) near() bool {
	for range 3 { // it may be busy with something else
		begin := time.Now()
		if !c.ping() {
			return false
		}
		switch took := time.Since(begin); {
		case took < nearby:
			return true
		case took > 5*nearby:
			return false
		}
	}
	return false
}

// ping requests an answer from the host and waits for it. The answer means that the host has consumed everything sent
// before. ping returns false if there is no answer.
func (c *Conn) ping() bool {
	b, ok := c.transport.(builtin)
	return ok && b.answers()
}

// compress returns the binary in gzip. A Go binary shrinks to less than half; the fastest level costs 250 ms once.
func (c *Client) compress(b Binary) ([]byte, error) {
	c.mu.Lock()
	p := c.packed[b.SHA256]
	if p == nil {
		p = &packed{}
		c.packed[b.SHA256] = p
	}
	c.mu.Unlock()
	p.once.Do(func() {
		in, err := b.Open()
		if err != nil {
			p.err = err
			return
		}
		defer in.Close()
		var body bytes.Buffer
		z, _ := gzip.NewWriterLevel(&body, gzip.BestSpeed)
		n, err := io.Copy(z, in)
		if err == nil && n != b.Size {
			err = fmt.Errorf("binary is %d bytes, not %d", n, b.Size)
		}
		if err == nil {
			err = z.Close()
		}
		p.body, p.err = body.Bytes(), err
	})
	return p.body, p.err
}

// nextMarker skips noise up to our next line and returns its verb and the rest.
func nextMarker(out *bufio.Reader, nonce string) (verb, detail string, err error) {
	prefix := marker + " " + nonce + " "
	said := ""
	for noise := 0; noise < maxNoise; {
		line, err := out.ReadSlice('\n')
		noise += len(line)
		if err == bufio.ErrBufferFull {
			continue // a piece of a long line; ours are short
		}
		if text := oneLine(string(line)); text != "" {
			said = text
		}
		if err == io.EOF && said != "" {
			return "", "", &otherAnswer{said}
		}
		if err != nil {
			return "", "", err
		}
		if rest, ok := strings.CutPrefix(strings.TrimSpace(string(line)), prefix); ok {
			verb, detail, _ = strings.Cut(rest, " ")
			return verb, detail, nil
		}
	}
	return "", "", &Error{Step: StepStart, Err: fmt.Errorf("the login shell printed more than %d bytes before it ran our command", maxNoise),
		Hint: "see what the login files on the host print"}
}

// otherAnswer is the output of a host that did not run our script.
type otherAnswer struct{ line string }

func (e *otherAnswer) Error() string { return "it printed instead of running our command: " + e.line }

func (e *otherAnswer) Is(target error) bool { return target == io.EOF }

// failure explains the script's FAIL.
func failure(detail string) *Error {
	kind, rest, _ := strings.Cut(detail, " ")
	rest = oneLine(rest)
	switch kind {
	case "platform":
		return &Error{Step: StepStart, Err: fmt.Errorf("wrong platform: the host is %s, this gorun is not made for it", rest),
			Hint: "run gorun from a machine of the same kind, or leave the host out"}
	case "damaged":
		return &Error{Step: StepUpload, Err: errors.New("the host received another binary than this gorun: its SHA-256 differs"),
			Hint: "try again; if it happens again, look for a program between here and the host that changes what ssh carries"}
	}
	return &Error{Step: StepUpload, Err: fmt.Errorf("no place for the binary: %s", rest),
		Hint: "free some space, or set XDG_CACHE_HOME on the host to a directory that is writable and not mounted noexec"}
}

// explain extends the cause, which is how the conversation with the program ended, to an *Error with the program's exit
// code and its last output on standard error. It ends the session.
func (s *Session) explain(cause error, step Step) *Error {
	// A program that keeps running with its output closed is cut off.
	timer := time.AfterFunc(outcomeLimit, func() { s.kill() })
	defer timer.Stop()
	tail := readTail(s.Stderr)
	code, err := s.Wait()
	if lost, ok := err.(broken); ok && !timer.Stop() {
		err = cut(lost)
	}
	last := lastLine(tail)
	e := &Error{Host: s.host, Step: step}
	var other *otherAnswer
	var by *Error
	if err != nil && s.blame != nil {
		last = cmp.Or(decisive(tail), last)
		by = s.blame(last)
	}
	switch {
	case s.ctx.Err() != nil:
		e.Err = context.Cause(s.ctx)
	case by != nil: // the launcher closed it, not the host
		e.Step, e.Err, e.Hint = cmp.Or(by.Step, step), fmt.Errorf("%w: %s", err, last), by.Hint
		if errors.Is(by.Err, ErrBroken) {
			e.Err = broken{e.Err}
		}
		return e
	case err != nil && last != "":
		e.Err = fmt.Errorf("%w; the host said: %s", err, last)
	case err != nil:
		e.Err = err
	case last != "":
		e.Err = fmt.Errorf("exit code %d: %s", code, last)
	case errors.As(cause, &other):
		e.Err = fmt.Errorf("exit code %d: %w", code, cause)
		tail = other.line
	case !errors.Is(cause, io.EOF):
		e.Err = fmt.Errorf("exit code %d: %w", code, cause)
	default:
		e.Err = errors.New(withoutWord(code))
	}
	if e.Hint = hintFor(code, tail); e.Hint == "" && other != nil {
		e.Hint = "a forced command (ForceCommand, command= in authorized_keys), a login shell or a login file takes its place: try ssh HOST true"
	}
	return e
}

// hintFor returns a hint for the common reasons why a host fails to start a program.
func hintFor(code int, said string) string {
	said = strings.ToLower(said)
	has := func(text string) bool { return strings.Contains(said, text) }
	switch {
	case has("exec format error"), has("cannot execute binary file"):
		return "the host has another kind of processor than this gorun was built for"
	case has("no space left"), has("disk quota"):
		return "the host's disk is full, or over quota: see ~/.cache"
	case has("read-only file system"):
		return "the host's home is read-only: set XDG_CACHE_HOME there to a writable directory"
	case has("not available"), has("nologin"):
		return "the account has no login shell on this host"
	case has("permission denied") && code == 126:
		return "the directory of the binary is mounted noexec, or a security policy forbids it"
	case has("cannot allocate memory"), has("resource temporarily unavailable"):
		return "the host is out of memory or processes: see ulimit -u"
	}
	return ""
}

// readTail reads to the end and keeps the last part.
func readTail(r io.Reader) string {
	var tail []byte
	buf := make([]byte, 4<<10)
	for {
		n, err := r.Read(buf)
		tail = append(tail, buf[:n]...)
		if extra := len(tail) - maxTail; extra > 0 {
			tail = append(tail[:0], tail[extra:]...)
		}
		if err != nil {
			return string(tail)
		}
	}
}

// lastLine returns the last line of a text, or why the Go runtime ended the program.
func lastLine(text string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "fatal error: ") || strings.HasPrefix(line, "runtime: failed to create new OS thread") {
			return oneLine(line)
		}
	}
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return oneLine(lines[len(lines)-1])
}

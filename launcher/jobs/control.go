package jobs

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gorun/launcher/why"
	"gorun/rendezvous/wire"
)

const (
	// maxRequest bounds a client's request.
	maxRequest = 4 << 10
	// ioTimeout bounds a client's request and its reading of the answer, and how long a launcher may take to answer.
	ioTimeout = 10 * time.Second
	// nativeTimeout bounds an answer that has functions of C.
	nativeTimeout = 40 * time.Second
	// acceptPause is how long a launcher waits after a client that it could not accept.
	acceptPause = 10 * time.Millisecond
)

// RankStatus is the state of a rank.
type RankStatus struct {
	Rank      int         `json:"rank"`
	Host      string      `json:"host"`
	PID       int         `json:"pid,omitempty"`
	State     string      `json:"state"`
	CPUMS     int64       `json:"cpu_ms"`
	At        int64       `json:"at_us"` // when that was so, by its host's clock, in microseconds since 1970
	RSS       int64       `json:"rss"`
	Processes int         `json:"processes"`
	Split     *wire.Split `json:"split,omitempty"` // nil if the rank counts nothing
	Arena     int64       `json:"arena"`           // bytes of shared memory for its tensors
}

// CPUs returns how many CPUs the rank used since an earlier answer about the same process; negative if that is unknown.
func (r RankStatus) CPUs(earlier RankStatus) float64 {
	if r.PID != earlier.PID || earlier.CPUMS == 0 || r.CPUMS < earlier.CPUMS || r.At <= earlier.At {
		return -1
	}
	return float64(r.CPUMS-earlier.CPUMS) * 1e3 / float64(r.At-earlier.At)
}

// Ended reports whether the process of the rank has ended.
func (r RankStatus) Ended() bool { return strings.HasPrefix(r.State, "ended ") }

// protocol is the version of requests and answers. A client of another one may only send signals and wait.
const protocol = 1

// Request is a line from a client; the answer is a line too.
type Request struct {
	Protocol int `json:"protocol"` // set by send

	Do     string `json:"do"`              // signal, state, output, why, drain or wait
	After  int64  `json:"after,omitempty"` // number of the first line of output
	Signal int    `json:"signal,omitempty"`
	By     string `json:"by,omitempty"` // who sends the signal, for people to read
	Native bool   `json:"native,omitempty"`
	Host   string `json:"host,omitempty"`
	Undo   bool   `json:"undo,omitempty"`
	Look   bool   `json:"look,omitempty"` // it is no order, and asks how far the host has come
}

// Departure is how far a host has come that is drained.
type Departure struct {
	Left  []int  `json:"left"`  // ranks that run there
	Waits string `json:"waits"` // for what they wait
	Used  bool   `json:"used"`  // the host is not drained any more
	Err   error  `json:"-"`     // why it cannot be drained
}

type answer struct {
	Error string          `json:"error,omitempty"`
	Is    json.RawMessage `json:"is,omitempty"`
	Code  int             `json:"code"` // for wait
}

// Asked returns what a client asks for that the daemon of a cluster notes: "signal", with its name and its sender,
// "output", "native", or "drain" with the host; "" for the rest.
func Asked(line []byte) (what, detail string) {
	var r Request
	if err := json.Unmarshal(line, &r); err != nil {
		return "", ""
	}
	switch {
	case r.Do == "output":
		return r.Do, ""
	case r.Do == "why" && r.Native:
		return "native", ""
	case r.Do == "drain" && !r.Look:
		return r.Do, Clean(r.Host)
	case r.Do == "signal":
		detail = unix.SignalName(syscall.Signal(r.Signal))
		if detail == "" {
			detail = fmt.Sprintf("signal %d", r.Signal)
		}
		if r.By != "" {
			detail += ", claimed by " + Clean(r.By)
		}
		return r.Do, detail
	}
	return "", ""
}

// Refusal returns why a launcher's answer refuses a request, "" if it does not.
func Refusal(line []byte) string {
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		return "the answer of the job's launcher is cut"
	}
	return Clean(a.Error)
}

// Handler answers a request for a launcher. Several goroutines call it.
type Handler func(ctx context.Context, r Request) (answer any, err error)

// Server serves the clients of a job.
type Server struct {
	listener net.Listener
	handler  Handler
	wg       sync.WaitGroup
	ended    chan struct{}
	code     int
	ctx      context.Context // ends when clients may not wait any longer
	cancel   context.CancelFunc
}

// Serve listens on the job's socket.
func (j Job) Serve(h Handler) (*Server, error) {
	path := j.file("control")
	if len(path) > 100 { // the kernel's limit is 108 bytes
		return nil, fmt.Errorf("listen at %s: the path is too long for a socket; set XDG_STATE_HOME to a shorter one", path)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for commands: %w", err)
	}
	if err := os.Chmod(path, 0o600); err != nil { // the directory is private anyway
		l.Close()
		return nil, fmt.Errorf("listen for commands: %w", err)
	}
	s := &Server{listener: l, handler: h, ended: make(chan struct{})}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wg.Go(s.accept)
	return s, nil
}

// End reports the job's exit status to waiting clients, and returns once they have received it.
func (s *Server) End(code int) {
	s.code = code
	close(s.ended)
	s.listener.Close() // removes the socket
	timer := time.AfterFunc(ioTimeout, s.cancel)
	defer timer.Stop()
	s.wg.Wait()
	s.cancel()
}

func (s *Server) accept() {
	for {
		conn, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many open files, for example: it passes
			time.Sleep(acceptPause)
			continue
		}
		s.wg.Go(func() {
			defer conn.Close()
			defer context.AfterFunc(s.ctx, func() { conn.Close() })()
			s.serve(conn)
		})
	}
}

func (s *Server) serve(conn net.Conn) {
	conn.SetDeadline(time.Now().Add(ioTimeout))
	line, err := bufio.NewReader(io.LimitReader(conn, maxRequest)).ReadBytes('\n')
	if err != nil {
		return
	}
	var r Request
	var a answer
	if err := json.Unmarshal(line, &r); err != nil {
		a.Error = "malformed request"
	} else if r.Do == "wait" {
		if !s.wait(conn) {
			return
		}
		a.Code = s.code
	} else if r.Protocol != protocol && r.Do != "signal" {
		a.Error = "it is of another version of gorun than this command, which can only stop and follow the job"
	} else if is, err := s.handler(s.ctx, r); err != nil {
		a.Error = err.Error()
	} else if a.Is, err = json.Marshal(is); err != nil {
		a.Error = err.Error()
	}
	conn.SetWriteDeadline(time.Now().Add(ioTimeout))
	json.NewEncoder(conn).Encode(a)
}

// wait waits for the end of the job. It returns false if the client has gone before.
func (s *Server) wait(conn net.Conn) bool {
	gone := make(chan struct{})
	conn.SetReadDeadline(time.Time{})
	s.wg.Go(func() { // until the connection is closed
		io.Copy(io.Discard, conn)
		close(gone)
	})
	select {
	case <-s.ended:
		return true
	case <-gone:
		return false
	}
}

// Signal sends a signal to the job's launcher, which handles it like one from a terminal. The record names who stops a
// job.
func (j Job) Signal(ctx context.Context, number int, by string) error {
	return j.ask(ctx, ioTimeout, Request{Do: "signal", Signal: number, By: by}, nil)
}

// Why returns what the daemons find out about each rank, with native also the functions of C that ranks are in. Tools
// stop each rank for a moment to read those.
func (j Job) Why(ctx context.Context, native bool) (all []why.Finding, err error) {
	limit := ioTimeout
	if native {
		limit = nativeTimeout
	}
	return all, j.ask(ctx, limit, Request{Do: "why", Native: native}, &all)
}

// Status returns what the launcher knows of the job, and has the daemons report newer figures.
func (j Job) Status(ctx context.Context) (s State, err error) {
	return s, j.ask(ctx, ioTimeout, Request{Do: "state"}, &s)
}

// Lines returns what ranks wrote, from a number on.
func (j Job) Lines(ctx context.Context, after int64) (l Lines, err error) {
	return l, j.ask(ctx, ioTimeout, Request{Do: "output", After: after}, &l)
}

// Drain has the ranks leave a host, or with undo lets the job use it again, and returns how far that has come. With look
// it only asks.
func (j Job) Drain(ctx context.Context, host string, undo, look bool) (d Departure, err error) {
	return d, j.ask(ctx, ioTimeout, Request{Do: "drain", Host: host, Undo: undo, Look: look}, &d)
}

// Wait waits for the end of the job and returns its exit status.
func (j Job) Wait(ctx context.Context) (int, error) {
	a, err := j.send(ctx, Request{Do: "wait"})
	if err == nil {
		return a.Code, nil
	}
	// It may have just ended.
	if j.Dir == "" {
		return 0, err
	}
	if r, err := j.Load(); err == nil && r.State == Ended {
		return r.Code, nil
	}
	return 0, err
}

// Connect connects to the launcher of a job on this machine.
func (j Job) Connect(ctx context.Context) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, "unix", j.file("control"))
}

// ask sends a request that a launcher answers at once, unless it is stopped or its machine hangs.
func (j Job) ask(ctx context.Context, limit time.Duration, r Request, into any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("it has not answered for %v; is it stopped (kill -CONT), or does its file system hang?", limit))
	defer cancel()
	a, err := j.send(ctx, r)
	if err != nil || into == nil {
		return err
	}
	if err := json.Unmarshal(a.Is, into); err != nil {
		also := ""
		if r.Do == "drain" && !r.Look {
			also = "; it may have carried out the order"
		}
		return fmt.Errorf("the job's launcher is of another version of gorun, which can only be stopped and followed%s", also)
	}
	return nil
}

func (j Job) send(ctx context.Context, r Request) (answer, error) {
	var a answer
	r.Protocol = protocol
	fail := func(err error) (answer, error) {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return a, fmt.Errorf("ask the job's launcher: %w", err)
	}
	dial := j.Dial
	if dial == nil {
		dial = j.Connect
	}
	conn, err := dial(ctx)
	if err != nil {
		return fail(err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := json.NewEncoder(conn).Encode(r); err != nil {
		return fail(err)
	}
	if err := json.NewDecoder(conn).Decode(&a); err != nil {
		return fail(err)
	}
	if a.Error != "" {
		return fail(errors.New(a.Error))
	}
	return a, nil
}

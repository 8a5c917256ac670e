// Package pmi serves PMI-1, which programs of the MPICH family (MPICH, Intel MPI, MVAPICH) use to learn their rank and
// find each other, so that they run under gorun unmodified. A Server serves the ranks of one host. Its owner exchanges
// with other hosts what ranks publish, at fences, and their requests about service names (MPI_Publish_name).
//
// A goroutine per rank reads its requests; it ends with the connection, and Close waits for all of them. The package
// opens no listener except in Listen, and starts no process.
//
// Sources: PMI-1.1 as MPICH documents it (src/pmi/maint/pmi-1.1.txt); Flux RFC 13.
package pmi

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Limits that are announced to clients.
const (
	maxName  = 256
	maxKey   = 64
	maxValue = 1024
	// maxLine bounds a request; a longer one ends the connection.
	maxLine = 4096
	// maxPairs bounds the pairs that the ranks of a host publish.
	maxPairs = 1 << 16
	// answerTimeout is how long a rank may leave an answer unread.
	answerTimeout = 5 * time.Second
	// drainTimeout is how long reading the last requests of an ended rank may take.
	drainTimeout = time.Second
)

// Config describes the ranks of one host.
type Config struct {
	Job   string  // names the key-value space
	Size  int     // of the world
	Hosts [][]int // ranks by host, this one among them
	Local []int   // ranks of this host
	// Programs are the numbers of their programs, by rank; other ranks run the first one.
	Programs map[int]int
	// Fence is called when all ranks of this host wait for a fence, with what they published since the last one. Fences
	// are counted from 1; the owner calls Release when all hosts have arrived.
	Fence func(number uint64, pairs map[string]string)
	// Name is called when a rank wants to publish, unpublish or look up a service; the owner, who keeps the names of
	// all hosts, calls Named with the answer.
	Name func(rank int, asks, service, port string)
	// Abort is called when a rank wants the job to end; the rank then exits by itself.
	Abort func(rank, code int, message string)
	// Stuck is called once, when ranks wait for a fence that an ended rank will not reach.
	Stuck func(ended int, waiting []int)
	// Say is called with what users hear of the requests of a rank; may be nil.
	Say func(text string)
	Log *slog.Logger
}

// Server answers the ranks of one host.
type Server struct {
	cfg     Config
	mapping string
	wg      sync.WaitGroup

	mu      sync.Mutex
	clients map[*client]bool
	waiting []*client             // ranks that wait for the fence
	number  uint64                // of the last fence that all ranks of this host reached
	visible map[string]string     // published before the last fence
	fresh   map[string]string     // published since
	asking  map[int]question      // about names, by rank
	inside  map[int]chan struct{} // of ranks between init and finalize; closed with the connection
	began   map[int]bool          // ranks that ever called init
	ended   []int                 // ranks whose processes have ended
	stuck   bool                  // Stuck was called
	closed  bool
}

// client is a rank's connection.
type client struct {
	server *Server
	rank   int
	conn   io.ReadWriteCloser
	over   chan struct{} // closed with the connection
}

// question is a pending request about a name.
type question struct {
	client *client
	asks   string
}

// New returns a server without connections.
func New(cfg Config) *Server {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Say == nil {
		cfg.Say = func(string) {}
	}
	return &Server{cfg: cfg, mapping: Mapping(cfg.Hosts, maxValue), clients: map[*client]bool{},
		visible: map[string]string{}, fresh: map[string]string{}, asking: map[int]question{},
		inside: map[int]chan struct{}{}, began: map[int]bool{}}
}

// Serve answers a rank until its connection ends, on a goroutine of the server.
func (s *Server) Serve(rank int, conn io.ReadWriteCloser) {
	c := &client{server: s, rank: rank, conn: conn, over: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		conn.Close()
		return
	}
	s.clients[c] = true
	s.wg.Go(func() {
		err := c.serve(bufio.NewReaderSize(conn, maxLine))
		conn.Close()
		close(c.over)
		s.mu.Lock()
		delete(s.clients, c)
		s.mu.Unlock()
		if !errors.Is(err, io.EOF) {
			s.cfg.Log.Debug("pmi: connection ended", "rank", rank, "err", err)
		}
		if errors.Is(err, errLine) || errors.Is(err, errLong) {
			s.cfg.Say(fmt.Sprintf("rank %d is cut off from PMI: %v", rank, err))
		}
	})
}

// Release ends a fence: pairs are what the ranks of all hosts published.
func (s *Server) Release(number uint64, pairs map[string]string) {
	s.mu.Lock()
	if number != s.number || len(s.waiting) < len(s.cfg.Local) {
		s.mu.Unlock()
		s.cfg.Log.Warn("pmi: released a fence that nobody waits for", "fence", number)
		return
	}
	maps.Copy(s.visible, pairs)
	waiting := s.waiting
	s.waiting = nil
	s.mu.Unlock()
	for _, c := range waiting {
		c.reply("cmd=barrier_out")
	}
}

// Inside reports whether a rank has called init and, in the requests read so far, not finalize.
func (s *Server) Inside(rank int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inside[rank] != nil
}

// Began reports whether a rank ever called init.
func (s *Server) Began(rank int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.began[rank]
}

// Left reports whether a rank whose process has ended left MPI properly. It waits until all its requests have been
// read.
func (s *Server) Left(rank int) bool {
	s.mu.Lock()
	over := s.inside[rank]
	s.mu.Unlock()
	if over == nil {
		return true
	}
	select {
	case <-over:
	case <-time.After(drainTimeout): // another process holds the other end of the connection
	}
	return !s.Inside(rank)
}

// Ended records that the process of a rank has ended: it reaches no fence any more.
func (s *Server) Ended(rank int) {
	s.mu.Lock()
	s.ended = append(s.ended, rank)
	s.mu.Unlock()
	s.checkFence()
}

// checkFence reports ranks of this host that wait for an ended one.
func (s *Server) checkFence() {
	s.mu.Lock()
	var waiting []int
	for _, c := range s.waiting {
		waiting = append(waiting, c.rank)
	}
	missing := slices.IndexFunc(s.ended, func(rank int) bool { return !slices.Contains(waiting, rank) })
	tell := !s.stuck && missing >= 0 && len(waiting) > 0 && len(waiting) < len(s.cfg.Local)
	ended := s.ended
	s.stuck = s.stuck || tell
	s.mu.Unlock()
	if tell {
		slices.Sort(waiting)
		s.cfg.Stuck(ended[missing], waiting)
	}
}

// Close ends all connections and waits for their goroutines.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for c := range s.clients {
		c.conn.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// serve answers requests until it fails, and returns why.
func (c *client) serve(r *bufio.Reader) error {
	for {
		line, err := r.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			err = errLong
		}
		if err != nil {
			return err
		}
		req, err := parse(line)
		if err != nil {
			return err
		}
		if err := c.answer(req); err != nil {
			return err
		}
	}
}

func (c *client) reply(format string, args ...any) error {
	if d, ok := c.conn.(interface{ SetWriteDeadline(time.Time) error }); ok {
		d.SetWriteDeadline(time.Now().Add(answerTimeout))
	}
	_, err := fmt.Fprintf(c.conn, format+"\n", args...)
	return err
}

// answer handles a request.
func (c *client) answer(req request) error {
	s := c.server
	switch req.cmd {
	case "init":
		s.mu.Lock()
		s.inside[c.rank], s.began[c.rank] = c.over, true
		s.mu.Unlock()
		// 1.1, whatever the client prefers: with 1.2 it may use threads and barriers of groups.
		return c.reply("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0")
	case "get_maxes":
		return c.reply("cmd=maxes kvsname_max=%d keylen_max=%d vallen_max=%d", maxName, maxKey, maxValue)
	case "get_appnum":
		return c.reply("cmd=appnum appnum=%d", s.cfg.Programs[c.rank])
	case "get_my_kvsname":
		return c.reply("cmd=my_kvsname kvsname=%s", s.space())
	case "get_universe_size":
		return c.reply("cmd=universe_size size=%d", s.cfg.Size)
	case "put":
		if err := s.put(req.args["kvsname"], req.args["key"], req.args["value"]); err != nil {
			return c.reply("cmd=put_result rc=-1 msg=%v", err)
		}
		return c.reply("cmd=put_result rc=0 msg=success")
	case "get":
		value, ok := s.get(req.args["kvsname"], req.args["key"])
		if !ok {
			return c.reply("cmd=get_result rc=-1 msg=key_%s_not_found value=unknown", req.args["key"])
		}
		return c.reply("cmd=get_result rc=0 msg=success value=%s", value)
	case "barrier_in":
		return s.arrive(c)
	case "publish_name", "unpublish_name", "lookup_name":
		return s.ask(c, strings.TrimSuffix(req.cmd, "_name"), req.args["service"], req.args["port"])
	case "spawn": // its other lines have no cmd and are ignored
		s.cfg.Say(fmt.Sprintf("rank %d: MPI_Comm_spawn is refused: start all programs at once, as gorun -np 1 ./master : -np 4 ./worker", c.rank))
		return c.reply("cmd=spawn_result rc=-1 msg=not_supported")
	case "abort":
		s.cfg.Abort(c.rank, req.number("exitcode", 1), req.args["message"])
		return nil // it expects no answer
	case "finalize":
		s.mu.Lock()
		delete(s.inside, c.rank)
		s.mu.Unlock()
		return c.reply("cmd=finalize_ack")
	case "":
		return nil
	}
	return c.reply("cmd=%s_result rc=-1 msg=unknown_command", req.cmd)
}

func (s *Server) space() string { return "gorun_" + s.cfg.Job }

var (
	errSpace = errors.New("no_such_kvsname")
	errPair  = errors.New("key_or_value_too_long")
	errFull  = errors.New("too_many_keys")
)

func (s *Server) put(space, key, value string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case space != s.space():
		return errSpace
	case key == "" || len(key) > maxKey || len(value) > maxValue:
		return errPair
	case len(s.fresh)+len(s.visible) >= maxPairs:
		return errFull
	}
	s.fresh[key] = value
	return nil
}

func (s *Server) get(space, key string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if space != s.space() {
		return "", false
	}
	if key == "PMI_process_mapping" {
		return s.mapping, s.mapping != ""
	}
	if v, ok := s.fresh[key]; ok {
		return v, true
	}
	v, ok := s.visible[key]
	return v, ok
}

// arrive counts a rank that waits for a fence; the last one of the host starts it.
func (s *Server) arrive(c *client) error {
	s.mu.Lock()
	if slices.ContainsFunc(s.waiting, func(other *client) bool { return other.rank == c.rank }) {
		s.mu.Unlock()
		return fmt.Errorf("rank %d waits for the barrier twice", c.rank)
	}
	s.waiting = append(s.waiting, c)
	if len(s.waiting) < len(s.cfg.Local) {
		s.mu.Unlock()
		s.checkFence()
		return nil
	}
	s.number++
	number, pairs := s.number, s.fresh
	s.fresh = map[string]string{}
	maps.Copy(s.visible, pairs)
	s.mu.Unlock()
	s.cfg.Fence(number, pairs)
	return nil
}

// ask forwards a rank's request about a name.
func (s *Server) ask(c *client, asks, service, port string) error {
	s.mu.Lock()
	_, twice := s.asking[c.rank]
	s.asking[c.rank] = question{c, asks}
	s.mu.Unlock()
	if twice {
		return fmt.Errorf("rank %d asks about another name before it has its answer", c.rank)
	}
	s.cfg.Name(c.rank, asks, service, port)
	return nil
}

// Named answers a rank's request about a name; port is the result of a lookup.
func (s *Server) Named(rank int, ok bool, port string) {
	s.mu.Lock()
	q, asked := s.asking[rank]
	delete(s.asking, rank)
	s.mu.Unlock()
	switch {
	case !asked:
		s.cfg.Log.Warn("pmi: an answer without a question", "rank", rank)
	case !ok && q.asks == "publish":
		q.client.reply("cmd=publish_result rc=1 msg=key_already_present")
	case !ok:
		q.client.reply("cmd=%s_result rc=1 msg=service_not_found", q.asks)
	case q.asks == "lookup":
		q.client.reply("cmd=lookup_result port=%s info=ok rc=0 msg=success", port)
	default:
		q.client.reply("cmd=%s_result info=ok rc=0 msg=success", q.asks)
	}
}

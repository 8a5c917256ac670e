package standing

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"gorun/rendezvous/audit"
	"gorun/rendezvous/resume"
	"gorun/rendezvous/wire"
)

// The daemons of jobs on this host outlive this daemon. Its successor finds them by the names of their sockets, counts
// their slots, and reconnects their launchers to them.

// maxEnded bounds the ended daemons whose last messages are kept.
const maxEnded = 64

// endedGrace is how long a daemon that has ended its jobs still answers launchers that look for them. They ask at once,
// and again after each retry.
const endedGrace = 4 * retry

// endTimeout is how long a daemon that has closed its connection may take to exit.
const endTimeout = 5 * time.Second

// jobs is guarded by the server's mu.
type jobs struct {
	cluster string // the cluster's name in the names of their sockets
	running map[string]*job
	ended   []endMessage
	ordered bool           // all of them were asked to end
	own     sync.WaitGroup // for the exits of the daemons that this one started
	adopted sync.WaitGroup
}

type job struct {
	resume.Session
	watch net.Conn // a daemon that another one started; the connection ends when it does
	over  func() error
	about []any // of the job, for the log; nil if another daemon has started it
	began time.Time
}

type endMessage struct{ session, text string }

// adopt takes over the daemons that a predecessor left on the host.
func (s *server) adopt() {
	for _, session := range resume.Sessions(s.jobs.cluster) {
		watch, err := session.Watch()
		if err != nil {
			continue // it has ended
		}
		s.cfg.Log.Info("takes over a job", "session", session.ID, "slots", session.Slots)
		s.follow(&job{Session: session, watch: watch, over: func() error {
			io.Copy(io.Discard, watch)
			return watch.Close()
		}})
	}
}

// follow counts a job's slots until its daemon has ended.
func (s *server) follow(j *job) {
	j.began = time.Now()
	s.mu.Lock()
	s.jobs.running[j.ID] = j
	if j.watch != nil {
		s.used += j.Slots // otherwise take has counted them
	}
	s.mu.Unlock()
	ends := &s.jobs.own
	if j.watch != nil {
		ends = &s.jobs.adopted
	}
	ends.Go(func() {
		err := j.over()
		s.logEnd(j, err)
		s.change(func() {
			delete(s.jobs.running, j.ID)
			s.used -= j.Slots
			text := "its daemon has ended"
			switch {
			case s.jobs.ordered:
				text = "its daemon was stopped at once, and its jobs with it"
			case err != nil:
				text = err.Error()
			}
			s.jobs.ended = append(s.jobs.ended, endMessage{j.ID, text})
			s.jobs.ended = s.jobs.ended[max(0, len(s.jobs.ended)-maxEnded):]
		})
	})
}

// logEnd logs that the daemon of a job has ended here, which may be before the job ends elsewhere.
func (s *server) logEnd(j *job, err error) {
	about := append(slices.Clip(j.about), "session", j.ID, "after", time.Since(j.began).Round(time.Millisecond))
	level := slog.LevelInfo
	if err != nil {
		level, about = slog.LevelWarn, append(about, "err", err)
	}
	s.cfg.Log.Log(context.Background(), level, "a job has ended", about...)
	e := audit.Entry{What: "job end", Job: j.ID, Slots: j.Slots}
	if err != nil {
		e.Result, e.Why = audit.Failed, err.Error()
	}
	s.journal.note(e)
}

func (s *server) allJobs() []*job {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*job
	for _, j := range s.jobs.running {
		out = append(out, j)
	}
	return out
}

// endJobs asks the daemons of all jobs to end, and waits until they have. A launcher whose stream has not begun by then
// is not notified and takes the broken connection for a daemon that is being replaced; it can still ask here.
func (s *server) endJobs() {
	all := s.allJobs()
	s.change(func() { s.jobs.ordered = true })
	for _, j := range all {
		j.End(resume.MaxTerm)
	}
	s.jobs.own.Wait()
	s.jobs.adopted.Wait()
	if len(all) > 0 {
		<-time.After(endedGrace)
	}
}

// leaveJobs leaves the daemons of jobs running. Each one that this daemon started holds a goroutine until it or this
// process ends.
func (s *server) leaveJobs() {
	for _, j := range s.allJobs() {
		if j.watch != nil {
			j.watch.Close()
		}
	}
	s.jobs.adopted.Wait()
}

// serve starts the daemon of one job.
func (s *server) serve(conn net.Conn, in io.Reader, r *wire.Serve) {
	if otherVersion(conn, r.Version, s.cfg.Version) {
		return
	}
	if r.Slots < 1 || !resume.ValidID(r.Session) {
		refuse(conn, "", "a job of %d slots, session %q", r.Slots, r.Session)
		return
	}
	if s.cfg.RequireEncrypt && !r.Encrypt {
		refuse(conn, encryptHint, "this host takes only jobs that encrypt what hosts send each other")
		return
	}
	if err := s.take(r.Slots); err != nil {
		refuse(conn, "start the job again", "%v", err)
		return
	}
	session := resume.Session{Cluster: s.jobs.cluster, ID: r.Session, Slots: r.Slots}
	about := []any{"user", r.User, "program", r.Program, "ranks", r.Ranks, "here", r.Slots}
	if err := s.begin(session, about, time.Duration(r.PatienceMS)*time.Millisecond); err != nil {
		s.change(func() { s.used -= r.Slots })
		s.cfg.Log.Warn("daemon of a job", "err", err)
		refuse(conn, "", "%v", err)
		return
	}
	s.connect(conn, in, r.Session, session.Dial)
}

// begin gives the job a daemon: the prestarted one, if it is still alive.
func (s *server) begin(session resume.Session, about []any, patience time.Duration) error {
	defer s.next.stir()
	p := s.next.take()
	if p != nil && p.give(session, patience) != nil {
		s.jobs.own.Go(p.dismiss)
		p = nil
	}
	if p == nil {
		var err error
		if p, err = s.next.launch(); err != nil {
			return err
		}
		if err := p.give(session, patience); err != nil {
			s.jobs.own.Go(p.dismiss)
			return err
		}
	}
	s.cfg.Log.Info("a job starts", append(slices.Clip(about), "session", session.ID)...)
	s.follow(&job{Session: session, about: about, over: func() error {
		defer s.next.stir()
		free, err := p.finish()
		if free {
			s.next.put(p)
		}
		return err
	}})
	return nil
}

// resume connects a launcher to a running daemon.
func (s *server) resume(conn net.Conn, in io.Reader, r *wire.Resume) {
	j, text := s.find(r.Session)
	switch {
	case j == nil:
		refuse(conn, "", "%s", text)
	case r.End:
		j.End(r.Term)
		answer(conn, &wire.Granted{})
	case r.Adopt:
		s.connect(conn, in, r.Session, func() (*resume.Line, error) { return j.Adopt(r.Term) })
	default:
		s.connect(conn, in, r.Session, j.Dial)
	}
}

// find returns a running job, or else a text on how it ended.
func (s *server) find(session string) (j *job, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text = "it has no such job"
	if i := slices.IndexFunc(s.jobs.ended, func(w endMessage) bool { return w.session == session }); i >= 0 {
		text = s.jobs.ended[i].text
	}
	return s.jobs.running[session], text
}

// endMessage waits for the last message of a job whose daemon closed its connection, as it is most likely about to
// exit.
func (s *server) endMessage(session string, refused error) string {
	timeout := time.NewTimer(endTimeout)
	defer timeout.Stop()
	for {
		s.mu.Lock()
		news := s.news
		s.mu.Unlock()
		if j, text := s.find(session); j == nil {
			return text
		}
		select {
		case <-news:
		case <-timeout.C:
			return refused.Error()
		}
	}
}

// connect copies bytes between a launcher and the daemon of its job until one of them closes. If it is the launcher,
// the daemon is notified, since the launcher will most likely not return.
func (s *server) connect(conn net.Conn, in io.Reader, session string, dial func() (*resume.Line, error)) {
	line, err := dial()
	if err != nil {
		refuse(conn, "", "%s", s.endMessage(session, err))
		return
	}
	if !answer(conn, &wire.Granted{}) {
		conn.Close()
	}
	var theirs atomic.Bool // the daemon closed first
	var output sync.WaitGroup
	output.Go(func() {
		if _, err := io.Copy(conn, line); err == nil {
			theirs.Store(true)
		}
		conn.Close()
	})
	_, err = io.Copy(line, in)
	s.mu.Lock()
	hungUp := s.hungUp
	s.mu.Unlock()
	if !hungUp && !theirs.Load() && (err == nil || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)) {
		line.Orphan()
	}
	line.Close()
	output.Wait()
}

// limited keeps the first bytes written to it.
type limited struct {
	to   *bytes.Buffer
	room int
}

func (l *limited) Write(b []byte) (int, error) {
	n := min(len(b), l.room)
	l.room -= n
	l.to.Write(b[:n])
	return len(b), nil
}

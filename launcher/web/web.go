// Package web serves a page that shows a job while it runs: its hosts and their ring, where the time of its ranks goes,
// how fast it trains, what has happened, and what it waits for.
//
// A Server listens at the address of --web, or of gorun web. It asks its Source once a second, by itself, so that a
// page costs the launcher nothing more. The page is in the binary, and asks no other machine for anything. It polls
//
//	GET /api/state   the job as a View, in JSON
//	POST /api/why    what the job waits for, as an Answer, in JSON
//
// Who has the token of the address that gorun prints sees the page. A browser shows it once, in the query, and gets a
// cookie for it; a program sends it as "Authorization: Bearer TOKEN". guard.go holds what requests must be like.
package web

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"gorun/launcher/jobs"
	"gorun/launcher/why"
)

const (
	askInterval = time.Second
	// readTimeout bounds a request, and writeTimeout what the launcher takes to answer, with its daemons, and a client to read.
	readTimeout  = 10 * time.Second
	writeTimeout = 20 * time.Second
	maxHeader    = 16 << 10
)

// Source is the job that a page shows: its registration, or the control socket of its launcher.
type Source interface {
	Status(ctx context.Context) (jobs.State, error)
	Why(ctx context.Context) ([]why.Finding, error)
}

//go:embed page
var embedded embed.FS

// Server serves the page of one job.
type Server struct {
	listener net.Listener
	guard    *guard
	source   Source
	http     http.Server
	wg       sync.WaitGroup
	stop     context.CancelFunc
	asking   sync.Mutex // held while a client has the daemons asked

	mu    sync.Mutex
	view  View
	state []byte // the view, in JSON
}

// Serve listens at HOST:PORT, on the loopback interface where HOST is empty, until Close.
func Serve(address string, source Source) (*Server, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("serve page: %w", err)
	}
	if host == "" {
		host = "localhost"
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("serve page: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	s := &Server{listener: l, guard: newGuard(host, l.Addr()), source: source, stop: stop}
	s.look(ctx)
	s.http = http.Server{Handler: s.handler(), ReadTimeout: readTimeout, WriteTimeout: writeTimeout, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	s.wg.Go(func() { s.http.Serve(l) })
	s.wg.Go(func() { s.watch(ctx) })
	return s, nil
}

// URL returns the address of the page, with its token. It names the loopback interface by number: "localhost" may be
// an address on which another user listens.
func (s *Server) URL() string {
	at := s.listener.Addr().(*net.TCPAddr)
	shown := at.String()
	if at.IP.IsUnspecified() {
		name, err := os.Hostname()
		if err != nil {
			name = "localhost"
		}
		shown = net.JoinHostPort(name, fmt.Sprint(at.Port))
	}
	return "http://" + shown + "/?token=" + s.guard.token
}

// Close lets requests that have begun end, within a second, and stops.
func (s *Server) Close() error {
	s.stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := s.http.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close()
	}
	s.wg.Wait()
	return err
}

func (s *Server) handler() http.Handler {
	page, err := fs.Sub(embedded, "page")
	if err != nil {
		panic(err) // the directory is in the binary
	}
	mux := http.NewServeMux()
	files := http.FileServerFS(page)
	for _, path := range []string{"/{$}", "/app.js", "/draw.js", "/style.css", "/icon.svg"} {
		mux.Handle("GET "+path, files)
	}
	mux.HandleFunc("GET /api/state", s.serveState)
	mux.HandleFunc("POST /api/why", s.serveWhy)
	return s.guard.protect(mux)
}

func (s *Server) serveState(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	state := s.state
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Write(state)
}

// serveWhy asks the daemons. One client at a time may do that: each question interrupts the ranks.
func (s *Server) serveWhy(w http.ResponseWriter, r *http.Request) {
	if !s.asking.TryLock() {
		http.Error(w, "the daemons are being asked already", http.StatusTooManyRequests)
		return
	}
	defer s.asking.Unlock()
	all, err := s.source.Why(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(answerOf(all))
}

// watch keeps the view new.
func (s *Server) watch(ctx context.Context) {
	tick := time.NewTicker(askInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.look(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// look asks the source once. A launcher that does not answer leaves the last view, with the error.
func (s *Server) look(ctx context.Context) {
	state, err := s.source.Status(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.view.Error = err.Error()
	} else {
		s.view = s.view.next(state, time.Now())
	}
	if b, err := json.Marshal(s.view); err == nil {
		s.state = b
	}
}

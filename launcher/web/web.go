// Package web serves a page that shows a job while it runs: its hosts and their ring, where the time of its ranks goes,
// how fast it trains, what has happened, and what it waits for.
//
// A Server listens at the address of --web, or of gorun web. It asks its Source once a second, by itself, so that a
// page costs the launcher nothing more. The page is in the binary, and asks no other machine for anything. It polls
//
//	GET /api/state            the job as a View, in JSON
//	GET /api/output?after=N   what ranks wrote, from line N on, as jobs.Lines, in JSON
//	POST /api/why             what the job waits for, as an Answer, in JSON
//
// A server of ServeCluster has GET /api/cluster in their place.
//
// Who has the token of the address that gorun prints sees the job. It is in the fragment of the address, and the page and
// programs send it as "Authorization: Bearer TOKEN". There is no cookie, as browsers send those to all ports of a
// machine. guard.go holds what requests must be like.
package web

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"gorun/launcher/httpserve"
	"gorun/launcher/jobs"
	"gorun/launcher/why"
)

const (
	// readTimeout bounds a request, and writeTimeout what the launcher takes to answer, with its daemons, and a client to read.
	readTimeout  = 10 * time.Second
	writeTimeout = 20 * time.Second
)

// Source is the job that a page shows: its registration, or the control socket of its launcher.
type Source interface {
	Status(ctx context.Context) (jobs.State, error)
	Why(ctx context.Context, native bool) ([]why.Finding, error)
	// Lines returns what ranks wrote, from a number on; from a negative one, the latest.
	Lines(ctx context.Context, after int64) (jobs.Lines, error)
}

//go:embed page
var embedded embed.FS

// Server serves the page of one job, or of a cluster.
type Server struct {
	*httpserve.Server
	guard  *guard
	source Source
	asking sync.Mutex // held while a client has the daemons asked

	look func(ctx context.Context) (View, error)

	mu   sync.Mutex
	view View
	text []byte // the view, in JSON
}

// Serve serves the page of a job at HOST:PORT, on the loopback interface where HOST is empty, until Close.
func Serve(address string, source Source) (*Server, error) {
	s := &Server{source: source}
	s.look = func(ctx context.Context) (View, error) {
		state, err := s.source.Status(ctx)
		return viewOf(state), err
	}
	if err := s.serve(address, "job", func(mux *http.ServeMux) {
		mux.HandleFunc("GET /api/state", s.serveState)
		mux.HandleFunc("GET /api/output", s.serveOutput)
		mux.HandleFunc("POST /api/why", s.serveWhy)
	}); err != nil {
		return nil, err
	}
	return s, nil
}

// ServeCluster is Serve for a cluster: ask returns what is shown, which is written in JSON.
func ServeCluster(address string, ask func(ctx context.Context) (any, error)) (*Server, error) {
	s := &Server{look: func(ctx context.Context) (View, error) {
		cluster, err := ask(ctx)
		return View{Cluster: cluster}, err
	}}
	if err := s.serve(address, "cluster", func(mux *http.ServeMux) {
		mux.HandleFunc("GET /api/cluster", s.serveState)
	}); err != nil {
		return nil, err
	}
	return s, nil
}

// serve listens, and keeps what the page shows up to date.
func (s *Server) serve(address, page string, api func(mux *http.ServeMux)) (err error) {
	s.guard = newGuard()
	s.update(context.Background())
	s.Server, err = httpserve.Serve(address, &http.Server{Handler: s.handler(page, api), ReadTimeout: readTimeout, WriteTimeout: writeTimeout}, s.update)
	if err != nil {
		return fmt.Errorf("serve page: %w", err)
	}
	return nil
}

// URL returns the address of the page, with its token. It names the loopback interface by number: "localhost" may be
// an address on which another user listens.
func (s *Server) URL() string {
	at := s.Listener.Addr().(*net.TCPAddr)
	shown := at.String()
	if at.IP.IsUnspecified() {
		name, err := os.Hostname()
		if err != nil {
			name = "localhost"
		}
		shown = net.JoinHostPort(name, fmt.Sprint(at.Port))
	}
	return "http://" + shown + "/#" + s.guard.token
}

func (s *Server) handler(page string, api func(mux *http.ServeMux)) http.Handler {
	files, err := fs.Sub(embedded, "page")
	if err != nil {
		panic(err) // the directory is in the binary
	}
	mux := http.NewServeMux()
	served := http.FileServerFS(files)
	for _, path := range []string{"/job.js", "/cluster.js", "/draw.js", "/session.js", "/style.css", "/icon.svg"} {
		mux.Handle("GET "+path, served)
	}
	head, err := fs.ReadFile(files, "head.html")
	if err != nil {
		panic(err)
	}
	body, err := fs.ReadFile(files, page+".html")
	if err != nil {
		panic(err)
	}
	whole := append(bytes.ReplaceAll(head, []byte("PAGE"), []byte(page)), body...)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Write(whole)
	})
	api(mux)
	return s.guard.protect(mux)
}

func (s *Server) serveState(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	text := s.text
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	w.Write(text)
}

// serveOutput asks for what ranks wrote.
func (s *Server) serveOutput(w http.ResponseWriter, r *http.Request) {
	after, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
	if err != nil {
		http.Error(w, "after is no number", http.StatusBadRequest)
		return
	}
	lines, err := s.source.Lines(r.Context(), after)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(lines)
}

// serveWhy asks the daemons. One client at a time may do that: each question interrupts the ranks.
func (s *Server) serveWhy(w http.ResponseWriter, r *http.Request) {
	if !s.asking.TryLock() {
		http.Error(w, "the daemons are being asked already", http.StatusTooManyRequests)
		return
	}
	defer s.asking.Unlock()
	all, err := s.source.Why(r.Context(), false)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(answerOf(all))
}

// update looks once. What does not answer leaves the last view, with the error.
func (s *Server) update(ctx context.Context) {
	view, err := s.look(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		view = s.view
		view.Error = err.Error()
	} else {
		view.Now = time.Now()
	}
	s.view = view
	if text, err := json.Marshal(view); err == nil {
		s.text = text
	}
}

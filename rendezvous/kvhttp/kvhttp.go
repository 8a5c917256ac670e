// Package kvhttp is the key-value service that ranks of stock Horovod (built with Gloo) use to find each other, so that
// such programs run under gorun unmodified. Values are opaque.
//
// A Store serves the worlds of a job. Each rank talks to a Member on its own host, which forwards to the Store.
//
// GET /scope/key answers 200 and the value, or 404; PUT stores a value; DELETE means that a rank is done with a scope.
// Source: horovod/runner/http/http_server.py and horovod/common/gloo/http_store.cc of Horovod 0.28.
//
// The protocol has no authentication. Therefore a Member hears only processes of its user, which the kernel names, and a
// Store only Members, by TLS with a key of the job. Memory is bounded, and the service runs only for jobs that ask for it.
package kvhttp

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"gorun/collective/admit"
	"gorun/rendezvous/keytls"
)

const (
	maxValue = 1 << 20
	maxBytes = 256 << 20
	// timeout bounds one request; clients set no timeout themselves.
	timeout = 10 * time.Second
	// idle is how long a member keeps a connection to the store that it does not use.
	idle = 5 * time.Second
)

var errKey = errors.New("the other side does not belong to this job")

// Store holds the values of one job.
type Store struct {
	mu     sync.Mutex
	values map[string][]byte
	bytes  int
}

// New returns an empty store.
func New() *Store { return &Store{values: map[string][]byte{}} }

// Seal returns what both sides of the connections between members and store use. seed is known to the job alone.
func Seal(seed []byte) (*tls.Config, error) { return keytls.New(seed, "http/1.1", errKey) } // the one name that net/http lets pass

// Serve answers members that have the key until ctx ends; then it closes the listener and all connections.
func (s *Store) Serve(ctx context.Context, l net.Listener, seal *tls.Config) error {
	server := &http.Server{Handler: s, ReadTimeout: timeout, WriteTimeout: timeout, IdleTimeout: 2 * idle, MaxHeaderBytes: 8 << 10,
		ErrorLog: log.New(io.Discard, "", 0), // of handshakes that fail
		ConnState: func(c net.Conn, now http.ConnState) {
			if now == http.StateActive { // the handshake is over, and a request begins
				c.(*tls.Conn).NetConn().(*admit.Conn).Known()
			}
		}}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	err := server.Serve(tls.NewListener(new(admit.Door).Listener(l), seal))
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// ServeHTTP implements http.Handler.
func (s *Store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	scope, key, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if !ok || scope == "" || key == "" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	path := scope + "/" + key
	switch r.Method {
	case http.MethodGet:
		s.mu.Lock()
		value, ok := s.values[path]
		s.mu.Unlock()
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		reply(w, value)
	case http.MethodPut:
		value, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxValue))
		if err != nil || !s.put(path, value) {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		}
	case http.MethodDelete:
		// A rank sends this once it is connected to all others. They may still ask, so values stay until the next round
		// of the scope overwrites them.
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

// reply sends a value with its length in the header, which Horovod's client requires for values of any length.
func reply(w http.ResponseWriter, value []byte) {
	w.Header().Set("Content-Length", strconv.Itoa(len(value)))
	w.Write(value)
}

// put stores a value, unless the store is full.
func (s *Store) put(path string, value []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	grow := len(value) - len(s.values[path])
	if _, known := s.values[path]; !known {
		grow += len(path)
	}
	if s.bytes+grow > maxBytes {
		return false
	}
	s.bytes += grow
	s.values[path] = value
	return true
}

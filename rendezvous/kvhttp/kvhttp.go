// Package kvhttp is the key-value service that ranks of stock Horovod (built with Gloo) use to find each other, so that
// such programs run under gorun unmodified. Values are opaque.
//
// A Store serves one world. In elastic jobs, where worlds change, each rank talks to a StockMember, which forwards to
// the Store.
//
// GET /scope/key answers 200 and the value, or 404; PUT stores a value; DELETE means that a rank is done with a scope.
// Source: horovod/runner/http/http_server.py and horovod/common/gloo/http_store.cc of Horovod 0.28.
//
// The protocol has no authentication. Therefore Serve closes connections from addresses outside the job before it reads
// from them, memory is bounded, and the service runs only for jobs that ask for it.
package kvhttp

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	maxValue = 1 << 20
	maxBytes = 256 << 20
	// timeout bounds one request; clients set no timeout themselves.
	timeout = 10 * time.Second
)

// Store holds the values of one job.
type Store struct {
	allow func(netip.Addr) bool

	mu     sync.Mutex
	values map[string][]byte
	bytes  int
}

// New returns an empty store that talks to the addresses that allow accepts.
func New(allow func(netip.Addr) bool) *Store {
	return &Store{allow: allow, values: map[string][]byte{}}
}

// Serve answers requests until ctx ends; then it closes the listener and all connections.
func (s *Store) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{Handler: s, ReadTimeout: timeout, WriteTimeout: timeout, MaxHeaderBytes: 8 << 10}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	err := server.Serve(members{l, s.allow})
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// members accepts connections from the hosts of the job only.
type members struct {
	net.Listener
	allow func(netip.Addr) bool
}

func (m members) Accept() (net.Conn, error) {
	for {
		c, err := m.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from, err := netip.ParseAddrPort(c.RemoteAddr().String())
		if err == nil && m.allow(from.Addr().Unmap().WithZone("")) {
			return c, nil
		}
		c.Close()
	}
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
		value, ok := s.get(path)
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

func (s *Store) get(path string) ([]byte, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.values[path]
	return v, ok
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

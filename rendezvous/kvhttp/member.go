package kvhttp

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"gorun/collective/admit"
)

// StockPlace is the position of a rank in a world.
type StockPlace struct {
	Rank, Size, LocalRank, LocalSize, CrossRank, CrossSize int

	Epoch uint32
	Store string // host:port of the world's Store
}

// StockMember is the service as one rank sees it, on the rank's own host. It forwards requests about the rank's world to
// the store. A rank of an elastic job keeps one address for life, while the store moves with the world; the member also
// answers which world comes next. Source: horovod/common/gloo/gloo_context.cc and horovod/runner/elastic of Horovod
// 0.28.
//
// Serve owns its goroutines; Announce runs in its caller's.
type StockMember struct {
	next   func(context.Context) (StockPlace, error)
	client *http.Client

	mu       sync.Mutex
	place    StockPlace
	listener *listener     // where the rank listens for news, nil until it registers
	listens  chan struct{} // closed then
}

// Client returns what the members of a host reach the store by.
func Client(seal *tls.Config) *http.Client {
	return &http.Client{Timeout: timeout, Transport: &http.Transport{TLSClientConfig: seal, MaxIdleConnsPerHost: 64, IdleConnTimeout: idle}}
}

// NewMember returns the service of a rank that starts at first. next waits for the rank's position in the next world.
func NewMember(client *http.Client, first StockPlace, next func(context.Context) (StockPlace, error)) *StockMember {
	return &StockMember{client: client, next: next, place: first, listens: make(chan struct{})}
}

// Serve answers processes of this user until ctx ends; then it closes the listener and all connections. It calls
// refused for each other connection.
func (m *StockMember) Serve(ctx context.Context, l net.Listener, refused func(error)) error {
	server := &http.Server{Handler: m, ReadTimeout: timeout, MaxHeaderBytes: 8 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	if err := server.Serve(admit.Local(l, refused)); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (m *StockMember) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	scope, key, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case !ok || scope == "" || key == "":
		w.WriteHeader(http.StatusBadRequest)
	case scope == "rank_and_size" && r.Method == http.MethodGet:
		m.move(w, r)
	case scope == "worker_addresses" && r.Method == http.MethodPut:
		m.register(w, r)
	default:
		m.pass(w, r, scope, key)
	}
}

// move answers a rank that has left its world with its position in the next one, as soon as that exists.
func (m *StockMember) move(w http.ResponseWriter, r *http.Request) {
	p, err := m.next(r.Context())
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	m.mu.Lock()
	m.place = p
	m.mu.Unlock()
	reply(w, fmt.Appendf(nil, "%d,%d,%d,%d,%d,%d", p.Rank, p.Size, p.LocalRank, p.LocalSize, p.CrossRank, p.CrossSize))
}

// register records where the rank listens for news.
func (m *StockMember) register(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxAddresses))
	var l *listener
	if err == nil {
		l, err = parseAddresses(body)
	}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.listener == nil {
		close(m.listens)
	}
	m.listener = l
}

// pass forwards a request to the store of the rank's world. Keys differ between worlds.
func (m *StockMember) pass(w http.ResponseWriter, r *http.Request, scope, key string) {
	m.mu.Lock()
	p := m.place
	m.mu.Unlock()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxValue))
	if err != nil {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		return
	}
	url := fmt.Sprintf("https://%s/%d.%s/%s", p.Store, p.Epoch, scope, key)
	ask, err := http.NewRequestWithContext(r.Context(), r.Method, url, bytes.NewReader(body))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	ask.Header["Idempotency-Key"] = nil // is not sent: to store a value twice is the same, so a connection that ended is no error
	answer, err := m.client.Do(ask)
	if err != nil { // its host may be lost: Horovod retries three times and then fails, as it does without gorun
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	value, err := io.ReadAll(io.LimitReader(answer.Body, maxValue))
	switch {
	case err != nil:
		w.WriteHeader(http.StatusBadGateway)
	case answer.StatusCode != http.StatusOK:
		w.WriteHeader(answer.StatusCode)
	default:
		reply(w, value)
	}
}

// repeatInterval is the interval between notifications: a rank loses any that arrive before its training has started.
const repeatInterval = 2 * time.Second

// Announce notifies the rank that hosts were added or removed, and repeats that until ctx ends, which is when the world
// has changed. Horovod notifies only the first rank, which informs the others. stamp must grow with each call.
func (m *StockMember) Announce(ctx context.Context, stamp int64, added, removed bool) {
	select {
	case <-m.listens:
	case <-ctx.Done():
		return
	}
	again := time.NewTicker(repeatInterval)
	defer again.Stop()
	for {
		m.mu.Lock()
		l := m.listener
		m.mu.Unlock()
		l.notify(ctx, stamp, added, removed) // a rank that does not answer may be ending
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// Package httpserve serves HTTP about a job or a daemon, on the loopback interface unless an address names another, and
// keeps what it serves up to date meanwhile. It answers only requests that call the server by a name of its own: a
// foreign name that leads here would let another site's script read what is served.
package httpserve

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"gorun/collective/admit"
)

const (
	// closeTimeout is how long requests that have begun may take once the server is closed.
	closeTimeout = time.Second
	// updateInterval is how often what is served is brought up to date.
	updateInterval = time.Second
	maxHeader      = 16 << 10
)

// Server answers requests until Close.
type Server struct {
	Listener net.Listener
	HTTP     *http.Server
	door     admit.Door
	stop     context.CancelFunc
	wg       sync.WaitGroup
}

// Serve answers requests at HOST:PORT by a server whose handler and time limits are set, and calls update each second.
// The contexts of update and of requests end with Close.
func Serve(address string, h *http.Server, update func(ctx context.Context)) (*Server, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	host = cmp.Or(host, "127.0.0.1")
	l, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	h.MaxHeaderBytes = maxHeader
	names, next := namesOf(host, l.Addr()), h.Handler
	h.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !names.include(r.Host) {
			w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
			http.Error(w, "the server has another name: use an address, or the name that it was started with", http.StatusMisdirectedRequest)
			return
		}
		next.ServeHTTP(w, r)
	})
	h.ConnContext = func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, peer{}, c) }
	h.BaseContext = func(net.Listener) context.Context { return ctx }
	s := &Server{Listener: l, HTTP: h, stop: stop}
	s.wg.Go(func() { h.Serve(s.door.Listener(l)) })
	s.wg.Go(func() {
		tick := time.NewTicker(updateInterval)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				update(ctx)
			case <-ctx.Done():
				return
			}
		}
	})
	return s, nil
}

// peer is the key of a request's connection in its context.
type peer struct{}

// Known notes that a request has authenticated, so that its connection is not closed for newer ones.
func Known(r *http.Request) {
	if c, ok := r.Context().Value(peer{}).(*admit.Conn); ok {
		c.Known()
	}
}

// names are those by which clients may call a server, beside addresses.
type names struct {
	known  map[string]bool
	remote bool // clients may be on other machines, which know the server by any of its addresses
}

// namesOf returns the names of a server that was to listen at host, and listens at addr.
func namesOf(host string, addr net.Addr) names {
	n := names{known: map[string]bool{"localhost": true, strings.ToLower(host): true}}
	if at, ok := addr.(*net.TCPAddr); !ok || !at.IP.IsLoopback() {
		n.remote = true
		if name, err := os.Hostname(); err == nil {
			n.known[strings.ToLower(name)] = true
		}
	}
	return n
}

// include reports whether the name in a request is one of the server, with any port, since a tunnel has its own.
func (n names) include(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if ip, err := netip.ParseAddr(host); err == nil {
		return n.remote || ip.Unmap().IsLoopback()
	}
	return n.known[strings.ToLower(strings.TrimSuffix(host, "."))]
}

// Address returns where the server listens.
func (s *Server) Address() string { return s.Listener.Addr().String() }

// Close lets requests that have begun end, within a second, and stops.
func (s *Server) Close() error {
	s.stop()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err := s.HTTP.Shutdown(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.HTTP.Close()
	}
	s.wg.Wait()
	return err
}

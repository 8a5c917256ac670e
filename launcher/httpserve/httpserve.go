// Package httpserve serves HTTP about a job or a daemon, on the loopback interface unless an address names another, and
// keeps what it serves up to date meanwhile.
package httpserve

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// closeTimeout is how long requests that have begun may take once the server is closed.
	closeTimeout = time.Second
	maxHeader    = 16 << 10
)

// Server answers requests until Close.
type Server struct {
	Listener net.Listener
	HTTP     *http.Server
	stop     context.CancelFunc
	wg       sync.WaitGroup
}

// Listen listens at HOST:PORT, on the loopback interface where HOST is empty, and returns the host that it took.
func Listen(address string) (l net.Listener, host string, err error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, "", err
	}
	if host != "" {
		l, err = net.Listen("tcp", net.JoinHostPort(host, port))
		return l, host, err
	}
	l, err = net.Listen("tcp", net.JoinHostPort("localhost", port))
	var unknown *net.DNSError
	if errors.As(err, &unknown) { // as in a container without /etc/hosts
		host = "127.0.0.1"
		l, err = net.Listen("tcp", net.JoinHostPort(host, port))
		return l, host, err
	}
	return l, "localhost", err
}

// Start answers requests by a server whose handler and time limits are set, and runs update beside it. The contexts of
// update and of requests end with Close.
func Start(l net.Listener, h *http.Server, update func(ctx context.Context)) *Server {
	ctx, stop := context.WithCancel(context.Background())
	h.MaxHeaderBytes = maxHeader
	h.BaseContext = func(net.Listener) context.Context { return ctx }
	s := &Server{Listener: l, HTTP: h, stop: stop}
	s.wg.Go(func() { h.Serve(l) })
	s.wg.Go(func() { update(ctx) })
	return s
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

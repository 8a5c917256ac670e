package web

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
)

const maxURL = 2 << 10

// guard decides which requests are answered. They have the token, come from the page itself or from a program, and call
// the server by a name of its own.
type guard struct {
	token  string
	names  map[string]bool // by which clients may call the server, beside addresses
	remote bool            // clients may be on other machines, which know the server by any of its addresses
}

// newGuard returns the guard of a server that was to listen at host, and listens at addr.
func newGuard(host string, addr net.Addr) *guard {
	g := &guard{token: rand.Text(), names: map[string]bool{"localhost": true, strings.ToLower(host): true}}
	if at, ok := addr.(*net.TCPAddr); !ok || !at.IP.IsLoopback() {
		g.remote = true
		if name, err := os.Hostname(); err == nil {
			g.names[strings.ToLower(name)] = true
		}
	}
	return g
}

// protect answers requests that may not reach next.
func (g *guard) protect(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "+
			"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		switch {
		case !g.named(r.Host):
			// A foreign name that leads here would make another site's script this page's own.
			http.Error(w, "the server has another name: open the address that gorun printed", http.StatusMisdirectedRequest)
		case !ours(r):
			http.Error(w, "the request comes from another site", http.StatusForbidden)
		case len(r.RequestURI) > maxURL:
			http.Error(w, "the address is too long", http.StatusRequestURITooLong)
		case r.ContentLength != 0: // no request has a body
			h.Set("Connection", "close")
			http.Error(w, "the request has a body", http.StatusRequestEntityTooLarge)
		case g.admits(r):
			next.ServeHTTP(w, r)
		default:
			http.Error(w, "open the address that gorun printed: it has a token", http.StatusUnauthorized)
		}
	})
}

// named reports whether the name in a request is one of this server, with any port, since a tunnel has its own.
func (g *guard) named(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if ip, err := netip.ParseAddr(host); err == nil {
		return g.remote || ip.Unmap().IsLoopback()
	}
	return g.names[strings.ToLower(strings.TrimSuffix(host, "."))]
}

// ours reports whether a request comes from the page or from no page at all.
func ours(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		return false
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return true
	default: // a link in another page may lead to this one
		return r.Method == http.MethodGet && r.URL.Path == "/" && r.Header.Get("Sec-Fetch-Mode") == "navigate"
	}
}

// admits reports whether a request shows the token. The page itself and its files are the same for all jobs, and need
// none: their script has the token from the fragment of the address, which no browser sends anywhere.
func (g *guard) admits(r *http.Request) bool {
	if !strings.HasPrefix(r.URL.Path, "/api/") {
		return true
	}
	sent, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && g.equal(sent)
}

// equal takes as long for every text.
func (g *guard) equal(sent string) bool {
	a, b := sha256.Sum256([]byte(sent)), sha256.Sum256([]byte(g.token))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

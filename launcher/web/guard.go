package web

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"gorun/launcher/httpserve"
)

const maxURL = 2 << 10

// guard decides which requests are answered: those that have the token, and come from the page itself or from a program.
type guard struct{ token string }

func newGuard() *guard { return &guard{rand.Text()} }

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
	if !ok || !g.equal(sent) {
		return false
	}
	httpserve.Known(r)
	return true
}

// equal takes as long for every text.
func (g *guard) equal(sent string) bool {
	a, b := sha256.Sum256([]byte(sent)), sha256.Sum256([]byte(g.token))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

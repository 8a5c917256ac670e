package httpserve

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"gorun/collective/admit/admittest"
	"gorun/contrib/must"
)

// TestNames: a server for other machines is called by any address, and by its own names.
func TestNames(t *testing.T) {
	for _, n := range []names{{known: map[string]bool{"host1": true}, remote: true}, {known: map[string]bool{"host1": true}}} {
		for host, want := range map[string]bool{"192.0.2.1:80": n.remote, "[2001:db8::1]:80": n.remote, "127.0.0.1:1": true, "[::1]:1": true,
			"HOST1:8080": true, "host1.": true, "evil.example": false, "": false} {
			if got := n.include(host); got != want {
				t.Errorf("%q of a server for others %v: %v", host, n.remote, got)
			}
		}
	}
}

// TestHostileHTTP: who opens connections again and again, idle ones or with half a request, keeps no one out, and a
// client that has authenticated keeps its connection. Another name than the server's own is not answered.
func TestHostileHTTP(t *testing.T) {
	s, err := Serve(":0", &http.Server{ReadTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		Known(r)
		io.WriteString(w, r.RemoteAddr)
	})}, func(context.Context) {})
	must.Do(t, err)
	defer s.Close()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	ask := func(name string, want int) string {
		t.Helper()
		r, _ := http.NewRequestWithContext(t.Context(), "GET", "http://"+s.Address(), nil)
		r.Host = name
		answer, err := client.Do(r)
		must.Do(t, err)
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		if answer.StatusCode != want || err != nil {
			t.Errorf("%s: %d, %v", name, answer.StatusCode, err)
		}
		return string(text)
	}
	first := ask("", 200)
	admittest.Flood(t, s.Address(), 300, "")
	admittest.Flood(t, s.Address(), 300, "GET / HTTP/1.1\r\n")
	if again := ask("localhost", 200); again != first {
		t.Errorf("a client that was known had to connect again: %s, %s", first, again)
	}
	client.CloseIdleConnections()
	if again := ask("localhost:80", 200); again == first {
		t.Error("no new connection")
	}
	if text := ask("evil.example", 421); strings.Contains(text, "127.0.0.1") || !strings.Contains(text, "another name") {
		t.Errorf("another site reads %q", text)
	}
}

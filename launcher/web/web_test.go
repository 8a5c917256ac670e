package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"gorun/contrib/must"
	"gorun/launcher/jobs"
	"gorun/launcher/why"
	"gorun/rendezvous/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// job is a source with so many ranks, two on each host.
type job struct {
	ranks int
	err   error
}

func (j job) Status(context.Context) (s jobs.State, err error) {
	s.Record = jobs.Record{ID: 7, Program: "python3 train.py\x1b[2J<script>", Ranks: j.ranks, Started: time.Unix(1700000000, 0)}
	for i := range j.ranks {
		s.Ranks = append(s.Ranks, jobs.RankStatus{Rank: i, Host: fmt.Sprint("host", i/2), PID: 100 + i, State: "runs", RSS: 4096,
			Split: &wire.Split{Elapsed: 10e6, Steps: 4, Step: 2e6, Data: 3e6}})
	}
	hosts := (j.ranks + 1) / 2
	for i := range hosts {
		s.Record.Hosts = append(s.Record.Hosts, fmt.Sprint("host", i))
		s.Hosts = append(s.Hosts, jobs.HostStatus{Name: fmt.Sprint("host", i), Next: fmt.Sprint("host", (i+1)%hosts), Epoch: 1, Links: wire.Links{SentBytes: 1e9}})
	}
	return s, j.err
}

func (j job) Why(context.Context, bool) ([]why.Finding, error) {
	return []why.Finding{{Rank: 1, Host: "host0", State: "sleeps\x1b[2J", Behind: true, Stack: "Current thread 0x1 (most recent call first):\n  File \"/a/train.py\", line 3 in f\n"}}, j.err
}

func (j job) Lines(_ context.Context, after int64) (jobs.Lines, error) {
	return jobs.Lines{Next: 3, Lines: []jobs.Line{{Rank: 1, Text: fmt.Sprint("line ", max(after, 0))}}}, j.err
}

func serve(t testing.TB, address string, source Source) *Server {
	t.Helper()
	s, err := Serve(address, source)
	must.Do(t, err)
	t.Cleanup(func() { must.Report(t, s.Close()) })
	return s
}

// answer has the server answer a request as it comes from the network.
func answer(s *Server, method, path string, header map[string]string, body io.Reader) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, body)
	r.Host = s.Listener.Addr().String()
	for key, value := range header {
		if key == "Host" {
			r.Host = value
		} else {
			r.Header.Set(key, value)
		}
	}
	w := httptest.NewRecorder()
	s.HTTP.Handler.ServeHTTP(w, r)
	return w
}

func TestGuard(t *testing.T) {
	s := serve(t, ":0", job{ranks: 4})
	at := s.Listener.Addr().String()
	if !strings.HasPrefix(at, "127.0.0.1:") && !strings.HasPrefix(at, "[::1]:") {
		t.Errorf("without a host it listens at %s", at)
	}
	bearer := func(more ...string) map[string]string {
		h := map[string]string{"Authorization": "Bearer " + s.guard.token}
		for i := 0; i < len(more); i += 2 {
			h[more[i]] = more[i+1]
		}
		return h
	}
	wrong := strings.Repeat("A", len(s.guard.token))
	for name, tt := range map[string]struct {
		method, path string
		header       map[string]string
		body         string
		want         int
	}{
		"token":                  {"GET", "/api/state", bearer(), "", 200},
		"cookie":                 {"GET", "/api/state", map[string]string{"Cookie": "gorun=" + s.guard.token}, "", 401},
		"query":                  {"GET", "/api/state?token=" + s.guard.token, nil, "", 401},
		"no token":               {"GET", "/api/state", nil, "", 401},
		"the page":               {"GET", "/", nil, "", 200},
		"its files":              {"GET", "/job.js", nil, "", 200},
		"output":                 {"GET", "/api/output?after=1", bearer(), "", 200},
		"output without number":  {"GET", "/api/output", bearer(), "", 400},
		"output without token":   {"GET", "/api/output?after=1", nil, "", 401},
		"question without token": {"POST", "/api/why", nil, "", 401},
		"another scheme":         {"GET", "/api/state", map[string]string{"Authorization": "Basic " + s.guard.token}, "", 401},
		"empty token":            {"GET", "/api/state", map[string]string{"Authorization": "Bearer "}, "", 401},
		"wrong token":            {"GET", "/api/state", map[string]string{"Authorization": "Bearer " + wrong}, "", 401},
		"foreign host":           {"GET", "/api/state", bearer("Host", "evil.example:80"), "", 421},
		"foreign address":        {"GET", "/api/state", bearer("Host", "192.0.2.1:80"), "", 421},
		"no host":                {"GET", "/api/state", bearer("Host", ""), "", 421},
		"tunnel":                 {"GET", "/api/state", bearer("Host", "localhost:9999"), "", 200},
		"foreign origin":         {"GET", "/api/state", bearer("Origin", "http://evil.example"), "", 403},
		"origin of a sandbox":    {"POST", "/api/why", bearer("Origin", "null"), "", 403},
		"another port's origin":  {"POST", "/api/why", bearer("Origin", "http://localhost:1"), "", 403},
		"another port's picture": {"GET", "/api/state", bearer("Sec-Fetch-Site", "same-site", "Sec-Fetch-Mode", "no-cors"), "", 403},
		"own origin":             {"POST", "/api/why", bearer("Origin", "http://"+at, "Sec-Fetch-Site", "same-origin"), "", 200},
		"link in another page":   {"GET", "/", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, "", 200},
		"frame of another page":  {"GET", "/", bearer("Sec-Fetch-Site", "cross-site", "Sec-Fetch-Mode", "no-cors"), "", 403},
		"long address":           {"GET", "/?" + strings.Repeat("x", maxURL), bearer(), "", 414},
		"body":                   {"POST", "/api/why", bearer(), "x", 413},
		"post to the state":      {"POST", "/api/state", bearer(), "", 405},
		"get of a question":      {"GET", "/api/why", bearer(), "", 405},
		"delete":                 {"DELETE", "/", bearer(), "", 405},
		"unknown":                {"GET", "/etc/passwd", bearer(), "", 404},
		"above":                  {"GET", "/../web.go", bearer(), "", 307},
		"index":                  {"GET", "/job.html", bearer(), "", 404},
	} {
		t.Run(name, func(t *testing.T) {
			var body io.Reader
			if tt.body != "" {
				body = strings.NewReader(tt.body)
			}
			w := answer(s, tt.method, tt.path, tt.header, body)
			if w.Code != tt.want {
				t.Errorf("status %d, want %d\n%s", w.Code, tt.want, w.Body)
			}
			if csp := w.Header().Get("Content-Security-Policy"); !strings.Contains(csp, "frame-ancestors 'none'") || strings.Contains(csp, "unsafe") {
				t.Errorf("policy %q", csp)
			}
			if strings.Contains(w.Body.String(), s.guard.token) {
				t.Error("the answer has the token")
			}
			if given := w.Header().Get("Set-Cookie"); given != "" {
				t.Errorf("cookie %q", given)
			}
		})
	}
}

// TestNetwork: over the network a page opens by its address alone, and headers have a limit.
func TestNetwork(t *testing.T) {
	s := serve(t, ":0", job{ranks: 4})
	for name, tt := range map[string]struct {
		url    string
		header string
		want   int
	}{
		"page":  {s.URL(), "", 200},
		"large": {s.URL(), strings.Repeat("x", 32<<10), 431},
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, tt.url, nil)
		must.Do(t, err)
		r.Header.Set("X-Large", tt.header)
		r.Close = true
		a, err := http.DefaultClient.Do(r)
		must.Do(t, err)
		b, err := io.ReadAll(a.Body)
		a.Body.Close()
		if err != nil || a.StatusCode != tt.want {
			t.Errorf("%s: status %d, want %d, %v\n%s", name, a.StatusCode, tt.want, err, b)
		}
	}
}

func TestState(t *testing.T) {
	s := serve(t, ":0", job{ranks: 5})
	header := map[string]string{"Authorization": "Bearer " + s.guard.token}
	w := answer(s, "GET", "/api/state", header, nil)
	var v View
	must.Do(t, json.Unmarshal(w.Body.Bytes(), &v))
	if v.Record.ID != 7 || v.Epoch() != 1 || len(v.Ranks) != 5 || len(v.Hosts) != 3 || v.Hosts[2].Next != "host0" {
		t.Errorf("%+v", v)
	}
	if bytes.ContainsAny(w.Body.Bytes(), "\x1b<") {
		t.Errorf("the program passes as it is:\n%s", w.Body)
	}
	w = answer(s, "POST", "/api/why", header, nil)
	var a Answer
	must.Do(t, json.Unmarshal(w.Body.Bytes(), &a))
	if !strings.HasPrefix(a.Verdict, "the job waits for rank 1 on host0") || strings.Contains(a.Verdict, "\x1b") || len(a.Evidence) != 1 || len(a.Stacks) != 1 || a.Stacks[0].Frames[0] != "f (/a/train.py:3)" {
		t.Errorf("%+v", a)
	}
}

// TestCluster: the page of a cluster has what was asked for, and why there is nothing newer.
func TestCluster(t *testing.T) {
	var wrong error
	s, err := ServeCluster(":0", func(context.Context) (any, error) { return map[string]int{"hosts": 3}, wrong })
	must.Do(t, err)
	defer s.Close()
	header := map[string]string{"Authorization": "Bearer " + s.guard.token}
	state := func() string { return answer(s, "GET", "/api/cluster", header, nil).Body.String() }
	if text := state(); !strings.Contains(text, `"cluster":{"hosts":3}`) || strings.Contains(text, "error") {
		t.Error(text)
	}
	wrong = errors.New("no answer")
	s.update(t.Context())
	if text := state(); !strings.Contains(text, `"cluster":{"hosts":3}`) || !strings.Contains(text, `"error":"no answer"`) {
		t.Error(text)
	}
	for path, want := range map[string]int{"/api/cluster": 401, "/": 200, "/api/state": 401, "/cluster.js": 200} {
		if w := answer(s, "GET", path, nil, nil); w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
	}
	if w := answer(s, "GET", "/", nil, nil); !strings.Contains(w.Body.String(), "cluster.js") {
		t.Errorf("its page is\n%s", w.Body)
	}
}

// TestNoAnswer: what is known stays, with why there is nothing newer.
func TestNoAnswer(t *testing.T) {
	s := serve(t, ":0", job{ranks: 4})
	s.source = job{err: errors.New("the launcher is gone")}
	s.update(t.Context())
	header := map[string]string{"Authorization": "Bearer " + s.guard.token}
	w := answer(s, "GET", "/api/state", header, nil)
	var v View
	if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil || v.Error != "the launcher is gone" || len(v.Ranks) != 4 {
		t.Errorf("%v %+v", err, v)
	}
	if w = answer(s, "POST", "/api/why", header, nil); w.Code != http.StatusServiceUnavailable {
		t.Errorf("status %d", w.Code)
	}
}

func TestMistakes(t *testing.T) {
	for _, address := range []string{"8080", "host:port:port", "127.0.0.1:99999"} {
		if s, err := Serve(address, job{ranks: 1}); err == nil {
			s.Close()
			t.Errorf("%s was taken", address)
		}
	}
}

// TestSize: the page is small, and asks no other machine for anything.
func TestSize(t *testing.T) {
	entries, err := embedded.ReadDir("page")
	must.Do(t, err)
	size := 0
	for _, e := range entries {
		b, err := embedded.ReadFile("page/" + e.Name())
		must.Do(t, err)
		size += len(b)
		for _, outside := range []string{"https://", "src=\"//", "innerHTML", "eval("} {
			if bytes.Contains(b, []byte(outside)) {
				t.Errorf("%s has %s", e.Name(), outside)
			}
		}
	}
	if size > 60<<10 {
		t.Errorf("the page has %d bytes", size)
	}
}

// FuzzHandler: whatever comes from the network, only the token opens anything.
func FuzzHandler(f *testing.F) {
	s := serve(f, ":0", job{ranks: 2})
	f.Add("GET", "/api/state", "localhost", "http://localhost", "gorun=x", "Bearer x")
	f.Add("POST", "/api/output?after=%ff", "[::1", "null", "gorun=", "Basic x")
	f.Add("GET", "//../job.js", "127.0.0.1:x", "", ";;", "")
	f.Fuzz(func(t *testing.T, method, target, host, origin, cookie, authorization string) {
		r, err := http.NewRequest(method, "http://x", nil)
		if err != nil {
			return
		}
		if r.URL, err = r.URL.Parse(target); err != nil {
			return
		}
		r.Host, r.RequestURI = host, target
		r.Header.Set("Origin", origin)
		r.Header.Set("Cookie", cookie)
		r.Header.Set("Authorization", authorization)
		w := httptest.NewRecorder()
		s.HTTP.Handler.ServeHTTP(w, r)
		if w.Code < 400 && strings.HasPrefix(r.URL.Path, "/api/") && !strings.Contains(authorization, s.guard.token) {
			t.Errorf("status %d without the token", w.Code)
		}
		if strings.Contains(w.Body.String(), "train.py") && !strings.Contains(authorization, s.guard.token) {
			t.Errorf("%s shows the job without the token", target)
		}
	})
}

package standing_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/rendezvous/audit"
	"gorun/rendezvous/standing"
)

// noted returns the entries of a log about one kind of request.
func noted(t *testing.T, path, what string) (found []audit.Entry) {
	t.Helper()
	b := must.Read(t, path)
	for line := range bytes.Lines(b) {
		var e audit.Entry
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if e.What == what {
			found = append(found, e)
		}
	}
	return found
}

// TestAudit: the log says who asked a daemon for what, and what became of it, and the daemon counts the same.
func TestAudit(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	log, err := audit.Open(path, "a", func(err error) { t.Error(err) })
	must.Do(t, err)
	defer log.Close()
	var stats func() standing.Stats
	a := startWith(t, "127.0.0.1:0", standing.Config{Name: "a", Slots: 2, Audit: log, Observe: func(f func() standing.Stats) { stats = f }})
	b := start(t, "b", 2, a.gossip)
	must.Soon(t, "cluster of two", func() bool { return len(a.jobs().Members) == 2 })
	l := a.reserve(2)
	s, err := l.Start(t.Context(), l.Shares()[0].Host)
	must.Do(t, err)
	if _, err := l.Start(t.Context(), "a"); err == nil {
		t.Error("a job has more slots than it was given")
	}
	if now := stats(); now.Used != 2 || now.Jobs != 1 || !now.Holds || now.Running != 1 || len(now.Members) != 2 || now.Members[0].Used != 2 {
		t.Errorf("%+v", now)
	}
	s.Close()
	l.Close()
	stranger := standing.Client{Key: keyOf("another"), Version: "v"}
	if _, err := stranger.Members(t.Context(), a.addr); err == nil {
		t.Error("another key is accepted")
	}
	b.stop()
	<-b.ended
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, want := range []struct {
		what, result, why string
		check             func(audit.Entry) bool
	}{
		{"begin", audit.Done, "", func(e audit.Entry) bool {
			return e.Slots == 2 && e.Daemon == "a" && e.Detail == "gorun v, accepts keys "+key.Fingerprints()[0]
		}},
		{"join", audit.Done, "", func(e audit.Entry) bool { return e.Host == "b" && e.From == b.addr }},
		{"reserve", audit.Done, "", func(e audit.Entry) bool {
			return e.Key == key.Fingerprints()[0] && e.Claims.Ranks == 2 && e.Claims.User == "u" && strings.HasPrefix(e.From, "127.0.0.1:")
		}},
		{"start", audit.Done, "", func(e audit.Entry) bool { return e.Slots == 2 && e.Job == s.Session() }},
		{"start", audit.Refused, "2 of 2 slots in use by other jobs", func(e audit.Entry) bool { return e.Job != s.Session() }},
		{"job end", audit.Done, "", func(e audit.Entry) bool { return e.Job == s.Session() }},
		{"release", audit.Done, "", func(e audit.Entry) bool { return e.From != "" }},
		{"connect", audit.Refused, "", func(e audit.Entry) bool { return strings.HasPrefix(e.From, "127.0.0.1:") && e.Why != "" && e.Key == "" }},
		{"leave", audit.Done, "", func(e audit.Entry) bool { return e.Host == "b" }},
	} {
		for fits := false; !fits; {
			all := noted(t, path, want.what)
			for _, e := range all {
				fits = fits || e.Result == want.result && (want.why == "" || e.Why == want.why) && want.check(e)
			}
			if !fits && ctx.Err() != nil {
				t.Fatalf("no %s %s in %+v", want.what, want.result, all)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	now := stats()
	if now.Requests[standing.Request{What: "start", Result: audit.Done}] != 1 || now.Requests[standing.Request{What: "start", Result: audit.Refused}] != 1 || now.Refused == 0 {
		t.Errorf("it counts %v, %d", now.Requests, now.Refused)
	}
	a.stop()
	<-a.ended
	log.Close()
	if len(noted(t, path, "drain")) != 1 || len(noted(t, path, "end")) != 1 {
		b, _ := os.ReadFile(path)
		t.Errorf("the end is not in\n%s", b)
	}
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"syscall"
	"testing"

	core "k8s.io/api/core/v1"
)

// broken is an output without a reader.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// TestFollowEnds: a log that cannot be written, and one that cannot be read any more, end all the same.
func TestFollowEnds(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		to     io.Writer
		want   error
		notes  int
	}{
		"it is read to its end": {200, io.Discard, nil, 0},
		"the output is broken":  {200, broken{}, syscall.EPIPE, 0},
		"its node is gone":      {500, io.Discard, nil, lastTries},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/log") {
				w.WriteHeader(c.status)
				io.WriteString(w, "2026-01-01T00:00:00Z line\n")
				return
			}
			p := pod("a", launcherPart, exited(0, "Completed", ""))
			json.NewEncoder(w).Encode(&core.Pod{ObjectMeta: p.ObjectMeta, Status: p.Status})
		}))
		base, err := url.Parse(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		notes := 0
		err = (&logReader{to: c.to}).follow(context.Background(), &client{http: server.Client(), base: base, namespace: "n"}, "a", func(error) { notes++ })
		if server.Close(); !errors.Is(err, c.want) || notes != c.notes {
			t.Errorf("%s: %v and %d notes, want %v and %d", name, err, notes, c.want, c.notes)
		}
	}
}

// FuzzLog: lines of a log are copied once, whatever they have, and however often and wherever the log begins again.
func FuzzLog(f *testing.F) {
	f.Add("a\nb\nc", uint8(1), uint8(0))
	f.Add("", uint8(0), uint8(3))
	f.Add(strings.Repeat("long", 40000)+"\n\n", uint8(2), uint8(1))
	f.Fuzz(func(t *testing.T, text string, cut, same uint8) {
		lines := strings.SplitAfter(text, "\n")
		var log []string
		for i, line := range lines {
			if line != "" {
				at := "2026-01-01T00:00:0" + string(rune('0'+min(9, i/(1+int(same)%4)))) + ".5Z" // some have the same time
				log = append(log, at+" "+line)
			}
		}
		var out strings.Builder
		l := &logReader{to: &out}
		first := log[:min(len(log), int(cut))]
		if err := l.copy(strings.NewReader(strings.Join(first, ""))); err != nil {
			t.Fatal(err)
		}
		if err := l.copy(strings.NewReader(strings.Join(log, ""))); err != nil {
			t.Fatal(err)
		}
		if out.String() != text {
			t.Errorf("%.200q instead of %.200q", out.String(), text)
		}
	})
}

// FuzzStrayLog: what is no log is copied, too, and bounds nothing.
func FuzzStrayLog(f *testing.F) {
	f.Add("failed to watch file\n2026-01-01T00:00:00Z line\n")
	f.Fuzz(func(t *testing.T, text string) {
		var out strings.Builder
		if err := (&logReader{to: &out}).copy(strings.NewReader(text)); err != nil || out.Len() > len(text) {
			t.Errorf("%v: %d bytes of %d", err, out.Len(), len(text))
		}
	})
}

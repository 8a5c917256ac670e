package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/kubelet/pkg/cri/streaming/portforward"
)

// pods forwards ports as a kubelet does: each leads to one listener.
type pods struct{ to net.Addr }

func (p pods) PortForward(_ context.Context, _ string, _ types.UID, port int32, stream io.ReadWriteCloser) error {
	conn, err := net.Dial("tcp", p.to.String())
	if err != nil {
		return err
	}
	defer conn.Close()
	go io.Copy(conn, stream)
	fmt.Fprintf(stream, "port %d: ", port)
	_, err = io.Copy(stream, conn)
	return err
}

// TestGorunOfAWorker: gorun reaches the daemon of a worker through the API server, with its key and variables in files, and what it says names
// the worker. Its status comes back, and that a user may not forward ports is said.
func TestGorunOfAWorker(t *testing.T) {
	daemon, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer daemon.Close()
	go func() {
		for {
			conn, err := daemon.Accept()
			if err != nil {
				return
			}
			io.WriteString(conn, "the daemon")
			conn.Close()
		}
	}()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch options, err := portforward.NewV4Options(q); {
		case q.URL.Path != "/api/v1/namespaces/ml/pods/train-worker-0/portforward":
			http.Error(w, "forbidden", http.StatusForbidden)
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadRequest)
		default:
			portforward.ServePortForward(w, q, pods{daemon.Addr()}, "train-worker-0", "", options, time.Minute, time.Minute, portforward.SupportedProtocols)
		}
	}))
	defer api.Close()
	gorun := filepath.Join(t.TempDir(), "gorun")
	script := `#!/usr/bin/env python3
import os, socket, sys
if sys.argv[1] != "stop":
    sys.argv[1:1] = ["bring"]
    sys.argv[6] = repr(open(sys.argv[7].split("=")[1]).read()) + oct(os.stat(sys.argv[7].split("=")[1]).st_mode & 0o777)
    del sys.argv[7]
cluster, key = sys.argv[2].split("=")[1], sys.argv[3].split("=")[1]
host, port = cluster.split(":")
said = socket.create_connection((host, int(port))).makefile().read()
print("gorun:", cluster, "gets", said, open(key).read(), oct(os.stat(key).st_mode & 0o777), sys.argv[1], sys.argv[4:], "TOKEN" in os.environ, file=sys.stderr)
print("gorun: job 1 runs", file=sys.stderr)
sys.exit(7)
`
	if err := os.WriteFile(gorun, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	base, _ := url.Parse(api.URL)
	t.Setenv("TMPDIR", t.TempDir())
	r := runner{client: &client{base: base, namespace: "ml", config: &rest.Config{Host: api.URL}},
		job: &job{gorun: gorun, key: "secret", words: []string{"true"}, variables: map[string]string{"TOKEN": `"hush" `}}}
	var said []string
	r.note = func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	for _, tt := range []struct {
		run  func() (int, error)
		want string
	}{
		{func() (int, error) {
			return r.gorun(t.Context(), "train-worker-0", []string{"stop"}, []string{"now"}, nil, r.note)
		}, `stop ['now'] False`},
		{func() (int, error) { return r.submit(t.Context(), "train-worker-0") }, `bring ['--detach', '--env-none', '\'TOKEN=""hush" "\\n\'0o600', 'true'] False`},
	} {
		said = nil
		code, err := tt.run()
		if want := "gorun: train-worker-0 gets port 7575: the daemon secret 0o600 " + tt.want; code != 7 || err != nil || strings.Join(said, "\n") != want {
			t.Errorf("%d, %v, %q, want %s", code, err, said, want)
		}
	}
	if left, _ := os.ReadDir(os.Getenv("TMPDIR")); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	if _, err := r.submit(t.Context(), "other"); err == nil || !strings.Contains(err.Error(), "forward a port to pod other: ") {
		t.Errorf("a pod that may not be reached: %v", err)
	} else if r.unable, r.limit = err, time.Now().Add(time.Minute); r.mayRetry() {
		t.Error("what is forbidden is tried again")
	}
}

// TestForwardGivenUp: Ctrl-C ends a dial that gets no answer, and the job may be brought to another worker.
func TestForwardGivenUp(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	base, _ := url.Parse("http://" + silent.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	r := runner{client: &client{base: base, config: &rest.Config{Host: base.String()}}, job: &job{}, limit: time.Now().Add(time.Minute)}
	if _, r.unable = r.submit(ctx, "w"); !errors.Is(r.unable, context.DeadlineExceeded) || !r.mayRetry() {
		t.Errorf("%v", r.unable)
	}
	if r.limit = time.Now(); r.mayRetry() {
		t.Error("tried for ever")
	}
}

// TestBroughtAgain: a job is brought again if its worker is gone and the launcher's pod was taken away, unless it goes on by other workers.
func TestBroughtAgain(t *testing.T) {
	ready := core.Pod{ObjectMeta: meta.ObjectMeta{UID: "b", Labels: map[string]string{partLabel: workerPart}}}
	ready.Status.Conditions = []core.PodCondition{{Type: core.PodReady, Status: core.ConditionTrue}}
	first := ready
	first.UID = "a"
	for _, tt := range []struct {
		least int
		taken bool
		pods  []core.Pod
		want  bool
	}{
		{3, true, []core.Pod{ready}, true}, {3, false, []core.Pod{ready}, false}, {3, true, []core.Pod{ready, first}, false},
		{1, true, []core.Pod{ready}, false}, {1, true, nil, true},
	} {
		r := runner{job: &job{ranks: 3, most: 3, slots: 1, least: tt.least}, at: "a", taken: tt.taken}
		if r.gone(&seen{pods: tt.pods}) != tt.want {
			t.Errorf("%+v", tt)
		}
	}
}

// TestVariablesFile: a file has what it can have; the rest is named.
func TestVariablesFile(t *testing.T) {
	j := job{variables: map[string]string{"A": "1", "B.c": "2", "KEY": "a\nb", "PYTHONPATH": "lib"}}
	text, words, env := j.variablesFile()
	if text != "A=\"1\"\n" || strings.Join(words, " ") != "-x B.c -x KEY -x PYTHONPATH=lib" || strings.Join(env, " ") != "B.c=2 KEY=a\nb" {
		t.Errorf("%q, %q, %q", text, words, env)
	}
}

// TestWorkerThatTakesTheJob: it is ready, stays, and is no launcher.
func TestWorkerThatTakesTheJob(t *testing.T) {
	pod := func(part string, conditions ...core.PodConditionType) (p core.Pod) {
		p.Labels = map[string]string{partLabel: part}
		for _, c := range conditions {
			p.Status.Conditions = append(p.Status.Conditions, core.PodCondition{Type: c, Status: core.ConditionTrue})
		}
		return p
	}
	s := seen{pods: []core.Pod{pod(launcherPart, core.PodReady), pod(workerPart), pod(workerPart, core.PodReady, core.DisruptionTarget)}}
	if w := s.worker(); w != nil {
		t.Errorf("%+v", w)
	}
	s.pods = append(s.pods, pod(workerPart, core.PodReady))
	if w := s.worker(); w != &s.pods[3] {
		t.Errorf("%+v", w)
	}
}

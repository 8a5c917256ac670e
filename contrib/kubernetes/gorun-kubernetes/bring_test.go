package main

import (
	"context"
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

// TestGorunOfAWorker: gorun reaches the daemon of a worker through the API server, with the key of the job in a file, and what it says names
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
cluster, key = sys.argv[2].split("=")[1], sys.argv[3].split("=")[1]
host, port = cluster.split(":")
said = socket.create_connection((host, int(port))).makefile().read()
print("gorun:", cluster, "gets", said, open(key).read(), oct(os.stat(key).st_mode & 0o777), sys.argv[1], sys.argv[4:], os.environ["TOKEN"], file=sys.stderr)
print("gorun: job 1 runs", file=sys.stderr)
sys.exit(7)
`
	if err := os.WriteFile(gorun, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	base, _ := url.Parse(api.URL)
	t.Setenv("TMPDIR", t.TempDir())
	r := runner{client: &client{base: base, namespace: "ml", config: &rest.Config{Host: api.URL}}, at: "train-worker-0",
		job: &job{gorun: gorun, key: "secret", variables: map[string]string{"TOKEN": "hush"}}}
	var said []string
	note := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	code, err := r.gorun(t.Context(), []string{"stop"}, []string{"now"}, note)
	if want := "gorun: train-worker-0 gets port 7575: the daemon secret 0o600 stop ['now'] hush"; code != 7 || err != nil || strings.Join(said, "\n") != want {
		t.Errorf("%d, %v, %q", code, err, said)
	}
	if left, _ := os.ReadDir(os.Getenv("TMPDIR")); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	r.at = "other"
	if _, err := r.gorun(t.Context(), nil, nil, note); err == nil || !strings.Contains(err.Error(), "forward a port to pod other: ") {
		t.Errorf("a pod that may not be reached: %v", err)
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

package controlplane

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
)

// engine is an API server with Kubernetes' own controllers and scheduler, and one node, whose pods run.
type engine struct {
	*server
	logs string    // a directory: what commands print
	node *exec.Cmd // holds the namespaces of the node
}

// newEngine starts all of it. gorun is taken from the environment.
func newEngine(t *testing.T) *engine {
	t.Helper()
	gorun := os.Getenv("GORUN_E2E_BINARY")
	if gorun == "" {
		t.Fatal("GORUN_E2E_BINARY is not set: run make test-kubernetes")
	}
	if os.Geteuid() != 0 {
		t.Fatal("pods need root: run make test-kubernetes with sudo")
	}
	e := &engine{server: newServer(t), logs: t.TempDir()}
	program := func(name string) string { return filepath.Join(e.programs, name) }
	config := e.kubeconfig()
	accounts, ca := filepath.Join(e.dir, accountsFile), filepath.Join(e.dir, certificateFile)
	start(t, program("kube-controller-manager"), "--kubeconfig="+config, "--secure-port=0", "--leader-elect=false",
		"--service-account-private-key-file="+accounts, "--root-ca-file="+ca)
	start(t, program("kube-scheduler"), "--kubeconfig="+config, "--secure-port=0", "--leader-elect=false")
	e.startNode(gorun)
	e.serveDNS()
	e.await("ready node", func() bool {
		text, _ := e.call("GET", "/api/v1/nodes/node1", "")
		return strings.Contains(text, `"type":"Ready","status":"True"`) && !strings.Contains(text, "node.kubernetes.io/not-ready")
	})
	return e
}

// kubeconfig writes a kubeconfig file for the API server.
func (s *server) kubeconfig() string { return s.kubeconfigOf(s.secret) }

// kubeconfigOf writes one for the user with a token.
func (s *server) kubeconfigOf(token string) string {
	s.Helper()
	path := filepath.Join(s.dir, "kubeconfig-"+token)
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: %q, certificate-authority: %q}}]
users: [{name: tester, user: {token: %s}}]
contexts: [{name: test, context: {cluster: test, user: tester}}]
current-context: test
`, s.url, filepath.Join(s.dir, certificateFile), token)
	check(s, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// within runs a subtest in a namespace of its own.
func (e *engine) within(name string, f func(e *engine)) {
	e.Run(name, func(t *testing.T) {
		s := *e.server
		s.T, s.namespace = t, name
		e := &engine{server: &s, logs: e.logs, node: e.node}
		e.must("POST", "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
		e.await("service account", func() bool {
			_, status := e.call("GET", "/api/v1/namespaces/"+name+"/serviceaccounts/default", "")
			return status == http.StatusOK
		})
		key, err := exec.Command("sh", "-c", "head -c 32 /dev/urandom | base64").Output()
		check(t, err)
		secret, err := json.Marshal(map[string]any{"metadata": map[string]string{"name": "gorun-key"}, "data": map[string][]byte{"key": key}})
		check(t, err)
		e.must("POST", "/api/v1/namespaces/"+name+"/secrets", string(secret))
		t.Cleanup(func() {
			if t.Failed() {
				e.show()
			}
			e.must("DELETE", "/api/v1/namespaces/"+name, "")
		})
		f(e)
	})
}

// show logs the state of the pods and what they print.
func (e *engine) show() {
	for _, p := range e.pods("") {
		status, _ := json.Marshal(p.Status)
		text, _ := e.call("GET", p.log(e.namespace), "")
		e.Logf("pod %s: %s\n%s", p.Metadata.Name, status, tail([]byte(text), 6000))
	}
	events, _ := e.call("GET", "/api/v1/namespaces/"+e.namespace+"/events", "")
	var list struct {
		Items []struct {
			Reason, Message string
			InvolvedObject  struct{ Kind, Name string }
		}
	}
	json.Unmarshal([]byte(events), &list)
	for _, event := range list.Items {
		e.Logf("event of %s %s: %s: %s", event.InvolvedObject.Kind, event.InvolvedObject.Name, event.Reason, event.Message)
	}
	names, _ := filepath.Glob(filepath.Join(e.logs, e.namespace+"_*"))
	for _, name := range names {
		text, _ := os.ReadFile(name)
		e.Logf("%s:\n%s", filepath.Base(name), tail(text, 6000))
	}
}

func tail(text []byte, length int) []byte { return text[max(0, len(text)-length):] }

// must makes a request that has to succeed.
func (s *server) must(method, path, body string) string {
	s.Helper()
	text, status := s.call(method, path, body)
	if status == 0 || status >= 300 {
		s.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	return text
}

// create applies the objects of a manifest, with some text replaced.
func (e *engine) create(manifest string, replace ...string) {
	e.Helper()
	text, err := os.ReadFile("../" + manifest)
	check(e, err)
	for i := 0; i < len(replace); i += 2 {
		if !bytes.Contains(text, []byte(replace[i])) {
			e.Fatalf("%s has no %q", manifest, replace[i])
		}
	}
	for _, object := range objects([]byte(strings.NewReplacer(replace...).Replace(string(text)))) {
		answer, status := e.apply(object)
		for range 50 { // a webhook may not have seen the object before yet that this one needs
			if status != http.StatusForbidden {
				break
			}
			time.Sleep(200 * time.Millisecond)
			answer, status = e.apply(object)
		}
		if status == 0 || status >= 300 {
			e.Fatalf("%s: %d %s", manifest, status, answer)
		}
	}
}

// pod has the fields of a pod that tests read.
type pod struct {
	Metadata struct {
		Name, UID         string
		DeletionTimestamp string
	}
	Status struct {
		Phase, PodIP, Reason string
		Conditions           []struct{ Type, Status, Reason string }
		ContainerStatuses    []struct {
			Name, ContainerID string
			RestartCount      int
			Ready             bool
			State             struct {
				Waiting    struct{ Reason, Message string }
				Terminated *struct{ ExitCode int }
			}
		}
	}
}

// ready reports whether all containers are.
func (p *pod) ready() bool {
	for _, c := range p.Status.Conditions {
		if c.Type == "Ready" {
			return c.Status == "True" && p.Metadata.DeletionTimestamp == ""
		}
	}
	return false
}

// log is where the API server has what the pod's only container prints.
func (p *pod) log(namespace string) string {
	return "/api/v1/namespaces/" + namespace + "/pods/" + p.Metadata.Name + "/log"
}

// pods returns the pods of the namespace that labels select.
func (e *engine) pods(selector string) []pod {
	e.Helper()
	var list struct{ Items []pod }
	check(e, json.Unmarshal([]byte(e.must("GET", "/api/v1/namespaces/"+e.namespace+"/pods?labelSelector="+selector, "")), &list))
	return list.Items
}

// pod returns a pod by its name.
func (e *engine) pod(name string) (p pod) {
	e.Helper()
	text, status := e.call("GET", "/api/v1/namespaces/"+e.namespace+"/pods/"+name, "")
	if status == http.StatusOK {
		check(e, json.Unmarshal([]byte(text), &p))
	}
	return p
}

// awaitReady waits until that many pods are ready, and no others are there.
func (e *engine) awaitReady(selector string, count int) {
	e.Helper()
	e.await(fmt.Sprintf("%d ready pods", count), func() bool {
		ready, all := 0, e.pods(selector)
		for _, p := range all {
			if p.ready() {
				ready++
			}
		}
		return ready == count && len(all) == count
	})
}

// exec runs a command in a pod, as kubectl exec does. What it prints goes to output, which takes both streams at once.
func (e *engine) exec(name string, output io.Writer, args ...string) error {
	e.Helper()
	query := url.Values{"command": args, "stdout": {"true"}, "stderr": {"true"}}
	config := &rest.Config{Host: e.url, BearerToken: e.secret, TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(e.dir, certificateFile)}}
	executor, err := remotecommand.NewWebSocketExecutor(config, "GET", e.url+"/api/v1/namespaces/"+e.namespace+"/pods/"+name+"/exec?"+query.Encode())
	if err != nil {
		return err
	}
	return executor.StreamWithContext(e.Context(), remotecommand.StreamOptions{Stdout: output, Stderr: output})
}

// gorun starts a command in a pod whose output goes to a file.
func (e *engine) gorun(name string, args ...string) *training {
	e.Helper()
	file, err := os.CreateTemp(e.logs, e.namespace+"_exec_*")
	check(e, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer file.Close()
		err = e.exec(name, file, append([]string{"gorun", "--cluster", "127.0.0.1", "--cluster-key-file", "/etc/gorun/key", "--connect-retry", "1m"}, args...)...) // daemons are ready before they have found each other
	}()
	e.Cleanup(func() { <-ended })
	return &training{engine: e, log: file.Name(), wait: func() error { <-ended; return err }}
}

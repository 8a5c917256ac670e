package controlplane

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// image is the name that the manifests give to the image with gorun and the program.
const image = "registry.example/train:latest"

// engine is an API server with Kubernetes' own controllers and scheduler, and one node, whose pods run.
type engine struct {
	*server
	logs string // what containers print
}

// newEngine starts all of it. gorun and kubelet are taken from the environment.
func newEngine(t *testing.T) *engine {
	t.Helper()
	gorun, kubelet := os.Getenv("GORUN_E2E_BINARY"), os.Getenv("KUBELET")
	if gorun == "" || kubelet == "" {
		t.Fatal("GORUN_E2E_BINARY or KUBELET is not set: run make test-kubernetes")
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
	start(t, kubelet, "--server="+e.url, "--ca="+ca, "--token="+e.secret, "--logs="+e.logs, "--certificate="+filepath.Join(e.dir, kubeletFiles), "--image="+image+"="+e.imageDir(gorun))
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
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
	return path
}

// imageDir makes the files of the image: gorun, and the program that all manifests name.
func (s *server) imageDir(gorun string) string {
	s.Helper()
	dir := s.TempDir()
	for from, to := range map[string]string{gorun: "usr/local/bin/gorun", "../../../testdata/elastic/train.py": "opt/train/train.py"} {
		to = filepath.Join(dir, to)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			s.Fatal(err)
		}
		if out, err := exec.Command("install", "-m", "755", from, to).CombinedOutput(); err != nil {
			s.Fatalf("install %s: %v: %s", from, err, out)
		}
	}
	// As images of MPIJobs have it: their workers have other keys each time.
	config := filepath.Join(dir, "etc/ssh/ssh_config")
	if err := os.MkdirAll(filepath.Dir(config), 0o755); err != nil {
		s.Fatal(err)
	}
	if err := os.WriteFile(config, []byte("Host *\n\tStrictHostKeyChecking no\n\tUserKnownHostsFile /dev/null\n"), 0o644); err != nil {
		s.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil { // it becomes the root directory
		s.Fatal(err)
	}
	return dir
}

// within runs a subtest in a namespace of its own.
func (e *engine) within(name string, f func(e *engine)) {
	e.Run(name, func(t *testing.T) {
		s := *e.server
		s.T, s.namespace = t, name
		e := &engine{&s, e.logs}
		e.must("POST", "/api/v1/namespaces", fmt.Sprintf(`{"metadata":{"name":%q}}`, name))
		e.await("service account", func() bool {
			_, status := e.call("GET", "/api/v1/namespaces/"+name+"/serviceaccounts/default", "")
			return status == http.StatusOK
		})
		key, err := exec.Command("sh", "-c", "head -c 32 /dev/urandom | base64").Output()
		if err != nil {
			t.Fatal(err)
		}
		secret, err := json.Marshal(map[string]any{"metadata": map[string]string{"name": "gorun-key"}, "data": map[string][]byte{"key": key}})
		if err != nil {
			t.Fatal(err)
		}
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
		e.Logf("pod %s: %s", p.Metadata.Name, status)
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
	if err != nil {
		e.Fatal(err)
	}
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

// pid is the first process of the pod's only container, as this machine numbers it.
func (p *pod) pid() (pid int) {
	if len(p.Status.ContainerStatuses) == 1 {
		fmt.Sscanf(p.Status.ContainerStatuses[0].ContainerID, "lab://%d", &pid)
	}
	return pid
}

// pods returns the pods of the namespace that labels select.
func (e *engine) pods(selector string) []pod {
	e.Helper()
	var list struct{ Items []pod }
	if err := json.Unmarshal([]byte(e.must("GET", "/api/v1/namespaces/"+e.namespace+"/pods?labelSelector="+selector, "")), &list); err != nil {
		e.Fatal(err)
	}
	return list.Items
}

// pod returns a pod by its name.
func (e *engine) pod(name string) (p pod) {
	e.Helper()
	text, status := e.call("GET", "/api/v1/namespaces/"+e.namespace+"/pods/"+name, "")
	if status == http.StatusOK {
		if err := json.Unmarshal([]byte(text), &p); err != nil {
			e.Fatal(err)
		}
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

// exec prepares a command in a pod, as the user of its container, as kubectl exec does.
func (e *engine) exec(name string, args ...string) *exec.Cmd {
	e.Helper()
	p := e.pod(name)
	pid := p.pid()
	if pid == 0 {
		e.Fatalf("%s does not run", name)
	}
	cmd := exec.CommandContext(e.Context(), "nsenter", append([]string{"-t", fmt.Sprint(pid), "-m", "-u", "-i", "-n", "-p", "-r", "-w", "--",
		"setpriv", "--reuid=1000", "--regid=1000", "--groups=1000", "--no-new-privs", "--"}, args...)...)
	environment, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		e.Fatal(err)
	}
	cmd.Env = strings.Split(strings.TrimSuffix(string(environment), "\x00"), "\x00")
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// gorun starts a command in a pod whose output goes to a file.
func (e *engine) gorun(name string, args ...string) *training {
	e.Helper()
	file, err := os.CreateTemp(e.logs, e.namespace+"_exec_*")
	if err != nil {
		e.Fatal(err)
	}
	defer file.Close()
	cmd := e.exec(name, append([]string{"gorun", "--cluster", "127.0.0.1", "--cluster-key-file", "/etc/gorun/key"}, args...)...)
	cmd.Stdout, cmd.Stderr = file, file
	if err := cmd.Start(); err != nil {
		e.Fatal(err)
	}
	return &training{engine: e, log: file.Name(), wait: cmd.Wait}
}

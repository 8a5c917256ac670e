package controlplane

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The modules of others.
const (
	jobsetModule      = "sigs.k8s.io/jobset@v0.8.0"
	mpiOperatorModule = "github.com/kubeflow/mpi-operator@v0.6.0"
	newJobsetModule   = "sigs.k8s.io/jobset@v0.10.1" // which Trainer 2.1 needs
	trainerModule     = "github.com/kubeflow/trainer/v2@v2.1.0"
	prometheusModule  = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
)

// The kinds of others, as their modules define them.
var definitions = map[string][]string{
	jobsetModule:      {"config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"},
	mpiOperatorModule: {"manifests/base/kubeflow.org_mpijobs.yaml"},
	trainerModule: {"manifests/base/crds/trainer.kubeflow.org_clustertrainingruntimes.yaml",
		"manifests/base/crds/trainer.kubeflow.org_trainingruntimes.yaml", "manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml"},
	prometheusModule: {"example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
		"example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml"},
}

// server is an API server with an etcd, which end with the test.
type server struct {
	*testing.T
	http      http.Client
	url       string
	secret    string
	namespace string // of the objects that the test makes
	dir       string // of the server's files
	programs  string // the directory of the programs
}

// The server's files, in its directory.
const (
	certificateFile = "apiserver.crt"
	accountsFile    = "accounts.key" // signs the tokens of service accounts
	kubeletFiles    = "kubelet"      // a directory: the kubelet's certificate and key
)

// check ends the test if there is an error.
func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start runs a program until the end of the test.
func start(t *testing.T, program string, args ...string) {
	t.Helper()
	startWith(t, exec.Command(program, args...))
}

func startWith(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	check(t, cmd.Start())
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			t.Logf("%s: %s", filepath.Base(cmd.Path), tail(said.Bytes(), 2000))
		}
	})
}

// port returns one of this machine that is free now.
func port(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func newServer(t *testing.T) *server {
	t.Helper()
	programs := os.Getenv("CONTROLPLANE")
	if programs == "" {
		t.Fatal("CONTROLPLANE is not set: run make test-kubernetes")
	}
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		check(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	check(t, err)
	accounts := write(accountsFile, string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	etcd, peers, secure := port(t), port(t), port(t)
	client := fmt.Sprintf("http://127.0.0.1:%d", etcd)
	peer := fmt.Sprintf("http://127.0.0.1:%d", peers)
	s := &server{T: t, url: fmt.Sprintf("https://127.0.0.1:%d", secure), secret: "tester", namespace: "default", dir: dir, programs: programs}
	s.certificate(filepath.Join(dir, kubeletFiles))
	start(t, filepath.Join(programs, "etcd"), "--data-dir="+filepath.Join(dir, "etcd"), "--listen-client-urls="+client,
		"--advertise-client-urls="+client, "--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer,
		"--initial-cluster=default="+peer, "--unsafe-no-fsync", "--log-level=warn")
	start(t, filepath.Join(programs, "kube-apiserver"), "--etcd-servers="+client, "--bind-address=127.0.0.1", "--advertise-address=192.0.2.1",
		fmt.Sprintf("--secure-port=%d", secure), "--cert-dir="+dir, "--service-cluster-ip-range=10.0.0.0/24",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+accounts,
		"--service-account-signing-key-file="+accounts, "--authorization-mode=RBAC",
		"--kubelet-preferred-address-types=InternalIP", "--kubelet-certificate-authority="+filepath.Join(dir, kubeletFiles, "tls.crt"),
		"--token-auth-file="+write("tokens", "tester,tester,tester,system:masters\nguest,guest,guest\n"))
	certificate := filepath.Join(dir, certificateFile)
	s.await("certificate of the API server", func() bool { // which it makes for itself
		text, _ := os.ReadFile(certificate)
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return false
		}
		s.http.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
		return true
	})
	s.await("API server", func() bool { _, status := s.call("GET", "/readyz", ""); return status == http.StatusOK })
	s.await("namespace", func() bool {
		_, status := s.call("GET", "/api/v1/namespaces/default", "")
		return status == http.StatusOK
	})
	return s
}

func (s *server) await(what string, f func() bool) {
	s.Helper()
	for range 1200 {
		if f() {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	s.Fatalf("no %s", what)
}

// call makes a request, with YAML or JSON, and returns the answer and its status; 0 without one.
func (s *server) call(method, path, body string) (string, int) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.Context()), time.Minute)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, s.url+path, strings.NewReader(body))
	if err != nil {
		return err.Error(), 0
	}
	request.Header.Set("Authorization", "Bearer "+s.secret)
	request.Header.Set("Content-Type", map[string]string{"PATCH": "application/apply-patch+yaml"}[method])
	if method == "POST" {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := s.http.Do(request)
	if err != nil {
		return err.Error(), 0
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return err.Error(), 0
	}
	return string(text), response.StatusCode
}

// path returns where objects of a kind are, as the API server itself says.
func (s *server) path(version, kind string) string {
	s.Helper()
	api := "/apis/" + version
	if !strings.Contains(version, "/") {
		api = "/api/" + version
	}
	found := ""
	s.await(version+" "+kind, func() bool {
		text, _ := s.call("GET", api, "")
		var list struct {
			Resources []struct {
				Name, Kind string
				Namespaced bool
			}
		}
		if json.Unmarshal([]byte(text), &list) != nil {
			return false
		}
		for _, r := range list.Resources {
			if r.Kind == kind && !strings.Contains(r.Name, "/") {
				found = api + "/" + r.Name
				if r.Namespaced {
					found = api + "/namespaces/" + s.namespace + "/" + r.Name
				}
			}
		}
		return found != ""
	})
	return found
}

var (
	versionLine = regexp.MustCompile(`(?m)^apiVersion: (\S+)`)
	kindLine    = regexp.MustCompile(`(?m)^kind: (\S+)`)
	nameLine    = regexp.MustCompile(`(?m)^metadata:\n(?:  .*\n)*?  name: (\S+)`)
)

// apply applies one object as kubectl apply --server-side does, but refuses fields that its kind does not have.
func (s *server) apply(object string) (string, int) {
	s.Helper()
	version, kind, name := versionLine.FindStringSubmatch(object), kindLine.FindStringSubmatch(object), nameLine.FindStringSubmatch(object)
	if version == nil || kind == nil || name == nil {
		s.Fatalf("no object of Kubernetes:\n%s", object)
	}
	return s.call("PATCH", s.path(version[1], kind[1])+"/"+name[1]+"?fieldManager=test&fieldValidation=Strict", object)
}

func objects(text []byte) (list []string) {
	for object := range strings.SplitSeq(string(text), "\n---\n") {
		if kindLine.MatchString(object) {
			list = append(list, object+"\n")
		}
	}
	return list
}

// jobs returns the Jobs that the controller of a JobSet, or of a runtime of Trainer, makes of an object.
func jobs(t *testing.T, text string) (list []string) {
	t.Helper()
	type replicated struct {
		Name     string
		Template struct{ Spec map[string]any }
	}
	var object struct {
		Spec struct {
			ReplicatedJobs []replicated
			Template       struct {
				Spec struct{ ReplicatedJobs []replicated }
			}
		}
	}
	check(t, json.Unmarshal([]byte(text), &object))
	for _, r := range append(object.Spec.ReplicatedJobs, object.Spec.Template.Spec.ReplicatedJobs...) {
		for _, count := range []string{"completions", "parallelism"} {
			if r.Template.Spec[count] == nil { // Trainer sets it from numNodes
				r.Template.Spec[count] = 2
			}
		}
		job, err := json.Marshal(map[string]any{"apiVersion": "batch/v1", "kind": "Job", "metadata": map[string]string{"name": r.Name}, "spec": r.Template.Spec})
		check(t, err)
		list = append(list, string(job))
	}
	return list
}

// define makes the kinds of others known.
func (s *server) define() {
	s.Helper()
	for module, files := range definitions {
		s.defineFrom(module, files)
	}
	for version, kinds := range map[string][]string{"jobset.x-k8s.io/v1alpha2": {"JobSet"}, "kubeflow.org/v2beta1": {"MPIJob"},
		"trainer.kubeflow.org/v1alpha1": {"ClusterTrainingRuntime", "TrainingRuntime", "TrainJob"}} {
		for _, kind := range kinds { // controllers need them from the start
			s.path(version, kind)
		}
	}
}

// defineFrom makes the kinds known that files of a module define.
func (s *server) defineFrom(module string, files []string) {
	s.Helper()
	dir := s.moduleDir(module)
	for _, name := range files {
		text, err := os.ReadFile(filepath.Join(dir, name))
		check(s, err)
		for _, object := range objects(text) {
			if answer, status := s.apply(object); status >= 300 || status == 0 {
				s.Fatalf("%s: %d %s", name, status, answer)
			}
		}
	}
}

// TestManifests: the API server takes each object of the manifests, and the Jobs that controllers would make of them. It
// refuses an object with a field that is written wrong.
func TestManifests(t *testing.T) {
	s := newServer(t)
	s.define()
	manifests, err := filepath.Glob("../*.yaml")
	if err != nil || len(manifests) < 4 {
		t.Fatalf("manifests: %q, %v", manifests, err)
	}
	rendered, err := filepath.Glob("../../helm/testdata/*.rendered.yaml") // of the chart
	if err != nil || len(rendered) < 2 {
		t.Fatalf("rendered: %q, %v", rendered, err)
	}
	manifests = append(manifests, rendered...)
	made := 0
	for _, name := range manifests {
		text, err := os.ReadFile(name)
		check(t, err)
		for _, object := range objects(text) {
			answer, status := s.apply(object)
			if status >= 300 || status == 0 {
				t.Errorf("%s: %d %s", name, status, answer)
				continue
			}
			for _, job := range jobs(t, answer) {
				if answer, status := s.call("POST", "/apis/batch/v1/namespaces/default/jobs?dryRun=All&fieldValidation=Strict", job); status != http.StatusCreated {
					t.Errorf("%s: a job of it: %d %s", name, status, answer)
				}
				made++
			}
			wrong := strings.Replace(object, "\nspec:\n", "\nspec:\n  sperc: 1\n", 1)
			if wrong == object {
				wrong += "sperc: 1\n"
			}
			if answer, status := s.apply(wrong); status != http.StatusBadRequest && status != http.StatusInternalServerError || !strings.Contains(answer, "sperc") {
				t.Errorf("%s with a wrong field: %d %s", name, status, answer)
			}
		}
	}
	if made != 3 {
		t.Errorf("%d jobs were tried, not the JobSet's two and the runtime's", made)
	}
}

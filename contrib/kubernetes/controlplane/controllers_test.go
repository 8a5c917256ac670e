package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// service is how the manifests of controllers name the address of their webhooks.
var service = regexp.MustCompile(`( +)service:\n +name: .*\n +namespace: .*\n +path: (\S+)\n`)

// moduleDir is where the files of a module are.
func (s *server) moduleDir(module string) string {
	s.Helper()
	out, err := exec.Command("go", "mod", "download", "-json", module).Output()
	if err != nil {
		s.Fatalf("go mod download %s: %v", module, err)
	}
	dir := regexp.MustCompile(`"Dir": "(.*)"`).FindSubmatch(out)
	if dir == nil {
		s.Fatalf("go mod download %s: %s", module, out)
	}
	return string(dir[1])
}

// controller starts a controller of the family that JobSet and Trainer are of, with its webhooks.
func (e *engine) controller(name, configuration, webhooks string, only ...string) {
	e.Helper()
	dir, address := e.TempDir(), port(e.T)
	certificates := filepath.Join(dir, "k8s-webhook-server", "serving-certs") // where such controllers look
	ca := e.certificate(certificates)
	config := filepath.Join(dir, "config.yaml")
	text := fmt.Sprintf("%s\nwebhook: {host: 127.0.0.1, port: %d}\nleaderElection: {leaderElect: false}\nmetrics: {bindAddress: \"0\"}\n"+
		"health: {healthProbeBindAddress: \"0\"}\n", configuration, address)
	check(e, os.WriteFile(config, []byte(text), 0o600))
	cmd := exec.Command(filepath.Join(e.programs, name), "--kubeconfig="+e.kubeconfig(), "--config="+config)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	startWith(e.T, cmd)
	manifests, err := os.ReadFile(webhooks)
	check(e, err)
	e.await(name, func() bool {
		conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", address))
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	for _, object := range objects(manifests) {
		object = service.ReplaceAllString(object, fmt.Sprintf("${1}url: https://127.0.0.1:%d${2}\n${1}caBundle: %s\n", address, ca))
		object = strings.NewReplacer(append([]string{"name: mutating-", "name: " + name + "-mutating-", "name: validating-", "name: " + name + "-validating-"},
			only...)...).Replace(object)
		if answer, status := e.apply(object); status == 0 || status >= 300 {
			e.Fatalf("%s: %d %s", webhooks, status, answer)
		}
	}
}

// certificate writes a certificate for this machine and its key, and returns it as webhooks name it.
func (s *server) certificate(dir string) string {
	s.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(s, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "webhooks"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.ParseIP(nodeAddress)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour), IsCA: true, BasicConstraintsValid: true}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	check(s, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	check(s, err)
	check(s, os.MkdirAll(dir, 0o700))
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate})
	for name, text := range map[string][]byte{"tls.crt": text, "tls.key": pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})} {
		check(s, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	return base64.StdEncoding.EncodeToString(text)
}

// jobSets starts the controller of JobSets, a program that was built from a module.
func (e *engine) jobSets(program, module string) {
	e.Helper()
	e.controller(program, "apiVersion: config.jobset.x-k8s.io/v1alpha1\nkind: Configuration\ninternalCertManagement: {enable: false}",
		filepath.Join(e.moduleDir(module), "config/components/webhook/manifests.yaml"),
		// The webhook sees only pods of JobSets, as with the patches in config/components/webhook.
		"name: mpod.kb.io\n", "name: mpod.kb.io\n  objectSelector: {matchExpressions: [{key: jobset.sigs.k8s.io/jobset-name, operator: Exists}]}\n",
		"name: vpod.kb.io\n", "name: vpod.kb.io\n  objectSelector: {matchExpressions: [{key: jobset.sigs.k8s.io/jobset-name, operator: Exists}]}\n")
}

//go:build linux

package launch

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
)

// TestDemoWithoutNamespaces: where no host can be made of namespaces, as in a container, make demo shows two hosts all
// the same: an sshd on each of two addresses. Nothing of them is left.
func TestDemoWithoutNamespaces(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("sshd logs in to this user only if its account is not locked")
	}
	e2etest.DependsOn(t, "contrib/demo", "contrib/examples")
	binary, err := e2etest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir() // the demo builds there, which is done
	for name, to := range map[string]string{"bin/gorun": binary, "contrib/demo": "", "contrib/examples": "", "contrib/lab": "", "go.mod": "", "go.sum": ""} {
		if to == "" {
			to = filepath.Join(e2etest.Root(), name)
		}
		file := filepath.Join(root, name)
		if out, err := exec.Command("sh", "-c", `mkdir -p "${2%/*}" && cp -r "$1" "$2"`, "", to, file).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	if err := os.WriteFile(filepath.Join(root, "bin/make"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	demo := exec.Command("setpriv", "--bounding-set", "-sys_admin,-net_admin", "--inh-caps", "-sys_admin,-net_admin", filepath.Join(root, "contrib/demo/demo.sh"))
	demo.Env = append(os.Environ(), "TMPDIR="+root, "PATH="+filepath.Join(root, "bin")+":"+os.Getenv("PATH"))
	out, err := demo.CombinedOutput()
	for _, want := range []string{"gorun: host2: data goes over 127.0.0.3\n", "[0]<stdout>:final accuracy 9", "\nDone: "} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("%v; no %q in\n%s", err, want, out)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(root, "tmp.*")); len(left) > 0 {
		t.Errorf("the demo leaves %v", left)
	}
}

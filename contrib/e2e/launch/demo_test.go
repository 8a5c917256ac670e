package launch

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// TestDemo: make demo ends well on whatever machine, and its last step shows that a training goes on without the host, or
// the rank, that is killed. Where no host can be made of namespaces, as in a container, there are two sshd's, and without
// sshd there is this machine. Without NumPy there is the standard library. Nothing is installed, and nothing is left.
func TestDemo(t *testing.T) {
	t.Parallel()
	e2etest.DependsOn(t, "contrib/demo", "contrib/examples", "contrib/tools")
	if os.Getuid() != 0 {
		t.Skip("only root can become another user, and take from itself what containers lack")
	}
	plain := []string{"setpriv", "--bounding-set", "-sys_admin,-net_admin", "--inh-caps", "-sys_admin,-net_admin"}
	user := []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"}
	for _, test := range []struct {
		name   string
		as     []string
		python string // its options
		want   []string
	}{
		{"PlainContainer", plain, "", []string{"gorun: host2: data goes over 127.0.0.3\n", "[0]<stdout>:final accuracy 9", "kill -9 everything on host2\n", "epoch 2: 2 ranks on 1 host"}},
		{"OrdinaryUser", user, "-S", []string{"lacks python3-numpy", "sshd lets nobody in here: ", "ranks: 4, hosts: 1", "kill -9 a rank\n", "epoch 2: 3 ranks on 1 host"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := demoRoot(t)
			own(t, root, "python3", "exec /usr/bin/python3 "+test.python+" \"$@\"")
			own(t, root, "make", "")
			if out, err := exec.Command("chmod", "-R", "a+rwX", filepath.Dir(root)).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			demo := exec.Command(test.as[0], append(test.as[1:], filepath.Join(root, "contrib/demo/demo.sh"))...)
			demo.Env = append(os.Environ(), "TMPDIR="+filepath.Dir(root), "PATH="+filepath.Join(root, "own")+":"+filepath.Join(root, "path"), "PYTHON="+filepath.Join(root, "own/python3"), "PIP_NO_INDEX=1", "DEMO_SPEAKS=")
			if test.as[1] == user[1] {
				demo.Env = append(demo.Env, "HOME="+root)
			}
			out, err := demo.CombinedOutput()
			last := regexp.MustCompile(`\nDone in \d+ s\. The training went on without what was killed\.\nNext: .*\n$`)
			if err != nil || !last.Match(out) {
				t.Fatalf("%v: %s", err, out)
			}
			for _, want := range test.want {
				if !strings.Contains(string(out), want) {
					t.Errorf("no %q in\n%s", want, out)
				}
			}
			if left, _ := filepath.Glob(filepath.Join(filepath.Dir(root), "tmp.*")); len(left) > 0 {
				t.Errorf("the demo leaves %v", left)
			}
		})
	}
}

// own makes a program that comes before those of the machine. It is a new file: the directory "path" is full of links.
func own(t *testing.T, root, name, text string) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(root, "own", name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err == nil {
		_, err = f.WriteString("#!/bin/sh\n" + text + "\n")
		err = errors.Join(err, f.Close())
	}
	must.Do(t, err)
}

// demoRoot is a tree of gorun's sources that is built, and a directory "path" with the programs of this machine.
func demoRoot(t *testing.T) string {
	t.Helper()
	binary, err := e2etest.Binary()
	must.Do(t, err)
	dir, err := os.MkdirTemp("/tmp", "demo") // where other users may go
	must.Do(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	root := filepath.Join(dir, "gorun") // not TMPDIR itself, where go ignores a go.mod
	script := `mkdir "$1"; cp -r --parents Makefile go.mod go.sum cmd/gorun/deps_test.go contrib/[cdelt]* .ci "$1"
mkdir -p "$1/bin" "$1/build" "$1/own" "$1/path"; cp "$2" "$1/bin/gorun"
IFS=:; for d in $PATH:/usr/sbin; do ln -s "$d"/* "$1/path" 2>/dev/null || :; done # the first of a name stays`
	cmd := exec.Command("sh", "-euc", script, "", root, binary)
	cmd.Dir = e2etest.Root()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return root
}

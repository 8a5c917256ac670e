package launch

import (
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
)

// TestOtherPython: hosts whose Pythons differ by their minor version, or by a framework's, are named before ranks start.
func TestOtherPython(t *testing.T) {
	c := e2etest.NewSSHCluster(t, 2)
	const python, site = "/run/venv/bin/python3", "/run/venv/lib/python3.11/site-packages"
	for n := range 2 {
		c.Shell(c.Host(n+1), "mkdir -p /run/venv/bin "+site+"/torch-2.4.0.dist-info && cp /bin/true /run/venv/bin/python3.11 && "+
			"ln -s python3.11 "+python+" && echo home = /none >/run/venv/pyvenv.cfg")
	}
	try := func(what, change, want string, flags ...string) {
		t.Helper()
		c.Shell(c.Host(2), change)
		r := c.GorunBeside(append(append([]string{"-H", "host1,host2"}, flags...), python, "train.py")...)
		code := map[bool]int{true: 2, false: 0}[strings.HasPrefix(want, "gorun: error: ")]
		if r.Code != code || !strings.Contains(r.Stderr, want) {
			t.Errorf("%s: exit code %d, want %d and %q in\n%s", what, r.Code, code, want, r.Stderr)
		}
	}
	try("the same", "true", "")
	try("a patch version", "mv "+site+"/torch-2.4.0.dist-info "+site+"/torch-2.4.1+cpu.dist-info", "")
	try("another torch", "mv "+site+"/torch-2.4.1+cpu.dist-info "+site+"/torch-2.5.0.dist-info", "gorun: error: host")
	try("another torch", "true", "gorun: warning: host", "--strict=false")
	try("no torch", "rm -r "+site+"/*", "")
	try("another Python", "mv /run/venv/bin/python3.11 /run/venv/bin/python3.9; ln -sf python3.9 "+python, "gorun: error: host")
	try("another Python that is meant", "true", "gorun: warning: host", "--strict=false")
}

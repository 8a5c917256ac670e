package python_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gorun/contrib/must"
	"gorun/worker/python"
)

// TestAsk: a real Python says what it is, in an environment what is below; another program is an error.
func TestAsk(t *testing.T) {
	file, err := exec.LookPath("python3")
	must.Do(t, err)
	p, base, err := python.Ask(t.Context(), file, os.Environ())
	must.Do(t, err)
	out, err := exec.CommandContext(t.Context(), file, "-c", "import platform, sys; print(*platform.libc_ver(), platform.machine(), '%d.%d' % sys.version_info[:2])").Output()
	if got := "glibc " + p.Libc + " " + p.Machine + " " + p.Version; err != nil || p.Libc != "" && got != strings.TrimSpace(string(out)) {
		t.Errorf("%s, want %s (%v)", got, out, err)
	}
	venv := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), file, "-m", "venv", "--without-pip", venv).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	inside, below, err := python.Ask(t.Context(), filepath.Join(venv, "bin", "python3"), os.Environ())
	if err != nil || inside != p || filepath.Dir(below) != filepath.Dir(base) {
		t.Errorf("%+v, %s, %v; outside %+v, %s", inside, below, err, p, base)
	}
	for _, not := range []string{"/bin/true", "/bin/false", "/none"} {
		if p, _, err := python.Ask(t.Context(), not, nil); err == nil || !strings.Contains(err.Error(), "ask "+not+" for its version") {
			t.Errorf("%s: %+v, %v", not, p, err)
		}
	}
}

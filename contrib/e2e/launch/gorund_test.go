package launch

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// TestHostsGetGorund: what a first start waits for is to bring the host a binary. So it is a small one, and it does all that gorun asks
// of hosts: nothing else comes to be there.
func TestHostsGetGorund(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	for says, args := range map[string][]string{
		"sums are right": {"-H", "host1,host2", e2etest.Python, "-c", sums},
		"busbw":          {"bench", "-H", "host1,host2", "-b", "4", "-e", "4", "--iters", "1"},
		" measured, ":    {"topo", "-H", "host1,host2", "--measure"},
		" 0 failed":      {"doctor", "-H", "host1,host2", "--network-interfaces", "eth0"},
	} {
		if r := c.Gorun(args...); r.Code != 0 || !strings.Contains(r.Stdout, says) {
			t.Errorf("%v: exit code %d, want %q\n%s\n%s", args, r.Code, says, r.Stdout, r.Stderr)
		}
	}
	gorund := must.Read(t, filepath.Join(c.Root, "cmd/gorun/gorund"))
	gorun, err := os.Stat(c.Binary)
	must.Do(t, err)
	// Without the launcher's part: 12.9 of 18.4 MB when this was written.
	if share := float64(len(gorund)) / float64(gorun.Size()-int64(len(gorund))); share > 0.8 {
		t.Errorf("gorund has %.2f of the size of what starts it", share)
	}
	want := fmt.Sprintf("%x", sha256.Sum256(gorund))
	for _, h := range c.Hosts() {
		sums, err := h.Exec(t.Context(), "sh", "-c", "cd /root/.cache/gorun && sha256sum */gorun")
		if err != nil || sums != fmt.Sprintf("%s  %s/gorun\n", want, want) {
			t.Errorf("%s has %s, not only %s: %v", h.Name(), sums, want, err)
		}
	}
	said, err := c.Host(1).Exec(t.Context(), "sh", "-c", "/root/.cache/gorun/*/gorun -np 1 true 2>&1; echo exit $?")
	if err != nil || said != "gorun: error: this is only what hosts need of gorun to take part in a job\n"+
		"gorun: hint: start jobs where gorun is installed\nexit 2\n" {
		t.Errorf("on a host it launches %q: %v", said, err)
	}
}

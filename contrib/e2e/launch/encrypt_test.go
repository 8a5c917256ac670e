package launch

import (
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
)

// A job whose links are encrypted computes what another one does, with any kind of segments.
func TestEncrypt(t *testing.T) {
	c := e2etest.NewCluster(t, 3)
	r := c.Gorun("bench", "-v", "--encrypt", "-H", "host1:2,host2,host3", "-b", "4", "-e", "4M", "-f", "32", "--iters", "5")
	if r.Code != 0 || !strings.Contains(r.Stderr, "links are encrypted (AES-256-GCM)") {
		t.Errorf("exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	if len(e2etest.Rows(r.Stdout)) != 5 {
		t.Errorf("rows are missing\n%s", r.Stdout)
	}
}

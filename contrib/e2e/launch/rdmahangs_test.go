package launch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
	"gorun/contrib/must"
)

// TestRDMALibraryHangs: a libibverbs that never finishes to load or to list devices, or that crashes, costs a host RDMA
// and a moment. The launcher, which takes a silent daemon for lost, does not lose patience before.
func TestRDMALibraryHangs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	source, library := filepath.Join(dir, "hangs.c"), filepath.Join(dir, "libibverbs.so.1")
	text := "#include <unistd.h>\n__attribute__((constructor)) static void hang(void) { sleep(1000); }\n"
	must.Do(t, os.WriteFile(source, []byte(text), 0o600))
	e2etest.Compile(t, "cc", "gcc", "-shared", "-fPIC", "-o", library, source)
	standin := e2etest.NewStandin(t)
	c := e2etest.NewClusterWith(t, 2, lab.Options{Share: []string{dir, standin.Dir}})
	for _, j := range []struct{ fault, library, want string }{
		{"", library, "gorund-rdma did not start within"},
		{"hang", standin.Library, "gorund-rdma did not start within"},
		{"crash", standin.Library, "gorund-rdma does not start here: SIGABRT: abort"},
	} {
		end := func() {}
		if j.fault != "" {
			end = standin.Fault(j.fault, "")
		}
		r := c.Gorun("--rdma", "on", "--rdma-library", j.library, "-np", "2", "-H", "host1:1,host2:1", "true")
		end()
		if n := strings.Count(r.Stderr, "data goes over TCP, not RDMA: "+j.want); r.Code != 0 || n != 2 {
			t.Errorf("%s: ends with %d, and %d hosts report it:\n%s", j.fault, r.Code, n, r.Stderr)
		}
	}
}

//go:build linux

package launch

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
)

// allSums prints a digest of allreduces from 4 B to 16 MiB.
const allSums = `import hashlib, numpy as np, gorun.numpy as hvd
hvd.init()
h = hashlib.sha256()
for turn in range(%d):
    for n in (1, 3, 1000, 70_000, 262_144, 1 << 20, 1 << 22):
        rng = np.random.default_rng([hvd.rank(), turn, n])
        h.update(hvd.allreduce(rng.standard_normal(n, dtype=np.float32), name=f"x{n}").tobytes())
print("digest", h.hexdigest())`

var (
	digestLine = regexp.MustCompile(`digest ([0-9a-f]{64})`)
	overRDMA   = regexp.MustCompile(`between hosts: sent (\d+) bytes \((\d+) over RDMA\)`)
)

// TestRDMA runs jobs over a stand-in for libibverbs: the sums have the bits that they have over TCP, also while queue
// pairs break within operations; then streams go on by TCP, and no rank starts again. Where RDMA is impossible, one line
// says why and the job goes over TCP.
func TestRDMA(t *testing.T) {
	t.Parallel()
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
		t.Skip("no headers of libibverbs: apt-get install libibverbs-dev")
	}
	shared, err := os.MkdirTemp("/dev/shm", "gorun-verbs-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(shared) })
	c := e2etest.NewClusterWith(t, 3, lab.Options{Share: []string{shared}})
	library := filepath.Join(shared, "libibverbs.so.1")
	source := filepath.Join(c.Root, "contrib/verbs/standin.c")
	if out, err := exec.Command(compiler, "-shared", "-fPIC", "-O2", fmt.Sprintf("-DDIRECTORY=%q", shared), "-o", library, source).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	run := func(t *testing.T, turns int, flags ...string) (digests, text string) {
		t.Helper()
		args := append([]string{"-v", "-np", "4", "-H", "host1:2,host2,host3"}, flags...)
		r := c.Gorun(append(args, e2etest.Python, "-c", fmt.Sprintf(allSums, turns))...)
		found := digestLine.FindAllStringSubmatch(r.Stdout, -1)
		if r.Code != 0 || len(found) != 4 {
			t.Fatalf("exit code %d, %d ranks ended well\n%s%s", r.Code, len(found), r.Stdout, r.Stderr)
		}
		for _, f := range found {
			if f[1] != found[0][1] {
				t.Errorf("ranks have different sums\n%s", r.Stdout)
			}
		}
		return found[0][1], r.Stderr
	}
	want, text := run(t, 3)
	if strings.Contains(text, "RDMA") {
		t.Errorf("without --rdma:\n%s", text)
	}
	standin := []string{"--rdma", "on", "--rdma-library", library}
	t.Run("sums", func(t *testing.T) {
		got, text := run(t, 3, standin...)
		if got != want {
			t.Errorf("the sums are not those over TCP")
		}
		if m := overRDMA.FindStringSubmatch(text); m == nil || m[1] != m[2] || !strings.Contains(text, "goes over RDMA: standin0 port 1, RoCE v2") {
			t.Errorf("not everything went over RDMA\n%s", text)
		}
	})
	t.Run("kills", func(t *testing.T) {
		if err := os.WriteFile(filepath.Join(shared, "kill"), []byte("100"), 0o644); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(filepath.Join(shared, "kill"))
		got, text := run(t, 3, standin...)
		if got != want {
			t.Errorf("the sums are not those over TCP")
		}
		if m := overRDMA.FindStringSubmatch(text); m == nil || m[1] == m[2] || !strings.Contains(text, "queue pair failed") {
			t.Errorf("not both went over something: RDMA and TCP\n%s", text)
		}
		t.Log(text)
	})
	for name, x := range map[string]struct {
		flags []string
		want  string
	}{
		"no device":    {[]string{"--rdma", "on"}, "data goes over TCP, not RDMA: no RDMA device (/dev/infiniband/uverbs*)"},
		"no library":   {[]string{"--rdma", "on", "--rdma-library", "/no/libibverbs.so.1"}, "data goes over TCP, not RDMA: load libibverbs: "},
		"other device": {append([]string{"--rdma", "mlx5_0"}, standin[2:]...), "goes over TCP, not RDMA: no RDMA port has the address of the connection"},
		"encrypted":    {append([]string{"--encrypt"}, standin...), "RDMA cannot be encrypted"},
	} {
		t.Run(name, func(t *testing.T) {
			got, text := run(t, 1, x.flags...)
			if !strings.Contains(text, x.want) || overRDMA.MatchString(text) {
				t.Errorf("digest %s; the output lacks %q\n%s", got, x.want, text)
			}
		})
	}
	t.Run("port down", func(t *testing.T) {
		if err := os.WriteFile(filepath.Join(shared, "down"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(filepath.Join(shared, "down"))
		if _, text := run(t, 1, standin...); !strings.Contains(text, "not RDMA: no port of standin0 is active; see gorun doctor") {
			t.Errorf("the port is down:\n%s", text)
		}
	})
	c.ExpectNothingLeft(10e9)
	if left, err := filepath.Glob(filepath.Join(shared, "*-*")); err != nil || len(left) > 0 {
		t.Errorf("%v are left, error %v", left, err)
	}
}

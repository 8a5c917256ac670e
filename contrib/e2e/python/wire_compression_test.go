package python

import (
	"encoding/json"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
)

// Sums of floats travel between hosts in fewer bytes, and bench shows how many.
func TestWireCompression(t *testing.T) {
	c := e2etest.NewCluster(t, 3)
	const size = 4 << 20
	sent := func(flags ...string) float64 {
		args := append([]string{"bench", "--json", "-v", "-H", "host1:2,host2,host3", "-b", "4M", "-e", "4M", "--iters", "5"}, flags...)
		r := c.Gorun(args...)
		var doc struct {
			Rows []struct {
				Wrong int64   `json:"wrong"`
				Wire  float64 `json:"wire_bytes"`
			} `json:"rows"`
		}
		if err := json.Unmarshal([]byte(r.Stdout), &doc); r.Code != 0 || err != nil || len(doc.Rows) != 1 || doc.Rows[0].Wrong != 0 {
			t.Fatalf("%v: exit code %d, %v\n%s%s", flags, r.Code, err, r.Stdout, r.Stderr)
		}
		if coding := flags[len(flags)-1]; coding != "none" && !strings.Contains(r.Stderr, "travel as "+coding) {
			t.Errorf("%v: -v does not say so\n%s", flags, r.Stderr)
		}
		return doc.Rows[0].Wire
	}
	for coding, share := range map[string]float64{"none": 1, "bf16": 0.5, "int8": 17. / 64} {
		want := share * size * 4 / 3 // 2(N-1)/N
		if got := sent("--algorithm", "ring", "--wire-compression", coding); got < want*0.99 || got > want*1.05 {
			t.Errorf("%s: %.0f bytes on the wire, want %.0f", coding, got, want)
		}
	}
	if got := sent("--dtype", "int32", "--algorithm", "ring", "--wire-compression", "fp16"); got < size*4/3 {
		t.Errorf("int32: %.0f bytes on the wire, they must not be compressed", got)
	}
}

// A script chooses for single operations, and all ranks get the same bits.
func TestWireCompressionFromPython(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	const script = `
import hashlib, numpy as np, gorun, gorun.numpy as hvd
hvd.init()
mine = np.random.default_rng(hvd.rank()).standard_normal(50_000).astype(np.float32)
exact = sum(np.random.default_rng(r).standard_normal(50_000).astype(np.float32) for r in range(hvd.size()))
for round in range(3):
    assert np.allclose(hvd.allreduce(mine, op=hvd.Sum, name="x"), exact, atol=1e-5)
    with gorun.wire_compression("int8"):
        coarse = hvd.allreduce(mine, op=hvd.Sum, name="x")
    off = np.abs(coarse - exact).max()
    assert 1e-3 < off < 0.2, off
assert len(set(hvd.allgather_object(hashlib.sha256(coarse.tobytes()).hexdigest()))) == 1
try:
    with gorun.wire_compression("zip"):
        pass
except ValueError as error:
    print(error)
`
	r := c.Gorun("-np", "3", "-H", "host1:2,host2:1", "--no-tag-output", e2etest.Python, "-c", script)
	if r.Code != 0 || strings.Count(r.Stdout, "wire_compression('zip'): it is one of default, none, fp16, bf16, int8") != 3 {
		t.Errorf("exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
}

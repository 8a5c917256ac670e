//go:build linux

package vm

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

var vmTable = flag.Bool("table", false, "whether TestVMRDMATable measures")

// tableRow is a row of contrib/bench/rdma.py; its last column is the share that went over RDMA.
var tableRow = regexp.MustCompile(`(?m)^\| (\d) \|.*\| (-|\d+%) \|$`)

// TestVMRDMATable prints the table of contrib/bench/rdma.py for one guest to four with Soft-RoCE.
func TestVMRDMATable(t *testing.T) {
	if !*vmTable {
		t.Skip("a measurement: four virtual machines with Soft-RoCE and nothing beside them")
	}
	_, root := vmProgram(t)
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Minute)
	defer cancel()
	l := rdmaGuests(ctx, t, root, 4)
	bench := filepath.Join(e2etest.Root(), "contrib/bench")
	var names []string
	for _, g := range l.Guests() {
		for _, file := range []string{"rdma.py", "running.py", "jax_ranks.py"} { // which ranks run from the same path
			text, err := os.ReadFile(filepath.Join(bench, file))
			must.Do(t, err)
			write := "mkdir -p " + bench + " && cat >" + filepath.Join(bench, file) + " <<'END OF FILE'\n" + string(text) + "END OF FILE\n"
			if _, err := g.Run(ctx, write); err != nil {
				t.Fatal(err)
			}
		}
		names = append(names, g.Name())
	}
	measure := l.Command(ctx, e2etest.Python, "-B", filepath.Join(bench, "rdma.py"), "--hosts", strings.Join(names, ","),
		"--rounds", "1", "--steps", "2", "--timeout", "600")
	measure.Env = append(measure.Env, "HOROVOD_START_TIMEOUT=240")
	out, err := measure.CombinedOutput()
	t.Logf("%s", out)
	must.Do(t, err)
	rows := tableRow.FindAllSubmatch(out, -1)
	if len(rows) != len(names) {
		t.Fatalf("the table has %d rows", len(rows))
	}
	for _, row := range rows[1:] {
		if string(row[2]) == "0%" || string(row[2]) == "-" {
			t.Errorf("with %s guests RDMA carried nothing", row[1])
		}
	}
}

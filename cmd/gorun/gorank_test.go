//go:build linux

package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
)

// The example of a rank that is a Go program does what it says.
func TestGoRank(t *testing.T) {
	e2etest.DependsOn(t, "contrib/examples/gorank")
	binary, err := e2etest.Binary()
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "gorank")
	build := exec.Command("go", "build", "-o", program, "./contrib/examples/gorank")
	build.Dir = e2etest.Root()
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), binary, "-np", "3", "--no-tag-output", program).CombinedOutput()
	for _, want := range []string{"rank 0 of 3: the neighbour has 3, all together 6", "rank 2 of 3: the neighbour has 2, all together 6"} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("%v: %q is not in\n%s", err, want, out)
		}
	}
	if out, err := exec.CommandContext(t.Context(), program).CombinedOutput(); err == nil || !strings.Contains(string(out), "start it by gorun") {
		t.Errorf("without gorun: %v, %s", err, out)
	}
}

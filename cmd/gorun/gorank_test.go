//go:build linux

package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
	"gorun/rendezvous/wire"
)

// TestGoRank runs the example of a rank that is a Go program. It is built as users build theirs: in a module of its own,
// outside of this one, with the two lines that docs/guides/c-and-go.md names.
func TestGoRank(t *testing.T) {
	e2etest.DependsOn(t, "contrib/examples/gorank")
	binary, err := e2etest.Binary()
	must.Do(t, err)
	dir := t.TempDir()
	source := must.Read(t, filepath.Join(e2etest.Root(), "contrib/examples/gorank/main.go"))
	name := strings.TrimSuffix(reflect.TypeFor[wire.Job]().PkgPath(), "/rendezvous/wire")
	mod := "module example.org/outside\n\ngo 1.26.0\n\nrequire " + name + " v0.0.0\n\nreplace " + name + " => " + e2etest.Root() + "\n"
	must.Do(t, errors.Join(os.WriteFile(filepath.Join(dir, "main.go"), source, 0o644), os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o644)))
	program := filepath.Join(dir, "gorank")
	build := exec.Command("go", "build", "-mod=mod", "-o", program, ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GOPROXY=off", "GONOSUMDB=*") // what it needs is there
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), binary, "-v", "-np", "3", "--no-tag-output", program).CombinedOutput()
	for _, want := range []string{"rank 0 of 3: the neighbour has 3, all together 6", "rank 2 of 3: the neighbour has 2, all together 6",
		"gorun: localhost: computing "} {
		if err != nil || !strings.Contains(string(out), want) {
			t.Fatalf("%v: %q is not in\n%s", err, want, out)
		}
	}
	if out, err := exec.CommandContext(t.Context(), program).CombinedOutput(); err == nil || !strings.Contains(string(out), "start it by gorun") {
		t.Errorf("without gorun: %v, %s", err, out)
	}
}

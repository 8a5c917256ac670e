package e2etest

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gorun/contrib/must"
)

// binaryVariable names an existing binary: make sets it, so that packages side by side share one.
const binaryVariable = "GORUN_E2E_BINARY"

// Binary returns the path of the real binary, including the Python binding. A test process without one builds it once.
var Binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(binaryVariable); path != "" {
		return path, nil
	}
	// One go test may test several packages; make replaces the binary in one step, even while others run it.
	root := Root()
	build := exec.Command("sh", "-c", "mkdir -p build && exec flock build/e2e.lock make -s build")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("make build: %w: %s", err, out)
	}
	return filepath.Join(root, "bin", "gorun"), nil
})

// Root returns the directory of the Go module that the test belongs to.
var Root = sync.OnceValue(func() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
	}
	panic("the test does not run in a Go module")
})

// Compile compiles a C program, or skips the test where there is no such compiler.
func Compile(t *testing.T, compiler, packages string, args ...string) {
	t.Helper()
	path, err := exec.LookPath(compiler)
	if err != nil {
		t.Skipf("no %s: install %s", compiler, packages)
	}
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
}

// DependsOn makes go test run the test again when a file in these directories of the module has changed, although only
// programs that the test starts read it: go test caches results by the files that the test itself has opened.
func DependsOn(t testing.TB, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		err := filepath.WalkDir(filepath.Join(Root(), dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() && !strings.HasSuffix(path, ".pyc") {
				_, err = os.Stat(path)
			}
			return err
		})
		must.Do(t, err)
	}
}

package main

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var build = flag.Bool("build", false, "also build gorun under the new name, and test a package, which takes minutes")

// TestRename renames a copy of this module: every import still leads to a package, and none has the old name.
func TestRename(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	command := func(in, name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Stderr = in, os.Stderr
		cmd.Env = append(os.Environ(), "GOWORK=off", "GOPROXY=off")
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s %q: %v\n%s", name, args, err, out)
		}
		return string(out)
	}
	command(root, "sh", "-c", `tar -c --exclude=./.git --exclude=./bin --exclude=./build . | tar -x -C "$0"`, dir)
	n, err := rename(dir, "example.org/Some/gorun")
	if err != nil || n < 100 {
		t.Fatalf("renamed %d files: %v", n, err)
	}
	before := strings.Split(command(root, "go", "list", "./..."), "\n")
	after := strings.Split(command(dir, "go", "list", "./..."), "\n")
	if len(before) != len(after) || after[0] != "example.org/Some/"+before[0] {
		t.Errorf("packages were %d from %s on, are %d from %s on", len(before), before[0], len(after), after[0])
	}
	for imported := range strings.Lines(command(dir, "go", "list", "-test", "-deps", "-f", "{{.ImportPath}}", "./...")) {
		if strings.HasPrefix(imported, "gorun/") {
			t.Errorf("%s is imported still", strings.TrimSpace(imported))
		}
	}
	for _, module := range []string{"contrib/vsphere", "contrib/grafana", "contrib/kubernetes", "contrib/tools/lint", "contrib/tools/release"} {
		if got := command(filepath.Join(dir, module), "go", "list", "-m"); strings.TrimSpace(got) != "example.org/Some/gorun/"+module {
			t.Errorf("%s is module %s", module, got)
		}
	}
	if out := command(dir, "gofmt", "-l", "cmd", "worker", "launcher"); out != "" {
		t.Errorf("gofmt would change %s", out)
	}
	if _, err := exec.LookPath("python3"); err == nil {
		command(dir, "python3", "-B", "contrib/tools/api.py", "--check") // the pages have the new name where the code has it
	}
	page, err := os.ReadFile(filepath.Join(dir, "docs/guides/c-and-go.md"))
	if err != nil || !strings.Contains(string(page), "require example.org/Some/gorun v0.0.0\nreplace example.org/Some/gorun => ") {
		t.Errorf("a document shows the old name: %v", err)
	}
	if !*build {
		return
	}
	command(dir, "make", "build", "VERSION=0.0.0+renamed")
	if got := command(dir, "bin/gorun", "version"); got != "gorun 0.0.0+renamed\n" {
		t.Errorf("the renamed gorun is %q", got)
	}
	command(dir, "go", "test", "./launcher/plan", "./contrib/tools/licenses")
}

func TestChange(t *testing.T) {
	imports := importsOf("gorun", []string{"cmd", "worker"})
	for in, want := range map[string]string{
		`import "gorun/worker/rank"`:        `import "a.b/gorun/worker/rank"`,
		"`gorun/worker/rank` and gorun/cmd": "`a.b/gorun/worker/rank` and a.b/gorun/cmd",
		"cmd/gorun/worker.go":               "cmd/gorun/worker.go",
		"/etc/gorun/worker.conf":            "/etc/gorun/worker.conf",
		"gorun/torch/optimizer.py":          "gorun/torch/optimizer.py",
		"gorun/workers/x":                   "gorun/workers/x",
	} {
		if got := change([]byte(in), "x.go", "gorun", "a.b/gorun", imports); !bytes.Equal(got, []byte(want)) {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	mod := "module gorun/contrib/x\n\nrequire (\n\tgorun v0.0.0\n\tgorunner v1.0.0\n)\n\nreplace gorun => ../..\n"
	want := strings.NewReplacer("module gorun", "module a.b/gorun", "\tgorun v", "\ta.b/gorun v", "replace gorun ", "replace a.b/gorun ").Replace(mod)
	if got := change([]byte(mod), "go.mod", "gorun", "a.b/gorun", imports); string(got) != want {
		t.Errorf("go.mod became %s", got)
	}
	shown := "require gorun v0.0.0\nreplace gorun => ../gorun\nrequire gorun on hosts; module gorun/torch\n"
	want = "require a.b/gorun v0.0.0\nreplace a.b/gorun => ../gorun\nrequire gorun on hosts; module gorun/torch\n"
	if got := change([]byte(shown), "x.md", "gorun", "a.b/gorun", imports); string(got) != want {
		t.Errorf("a document became %s", got)
	}
	for _, bad := range []string{"", "/x", "a b", "x/", "https://x"} {
		if _, err := rename(t.TempDir(), bad); err == nil || !strings.Contains(err.Error(), "bad module path") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

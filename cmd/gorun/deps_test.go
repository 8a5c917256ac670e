package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"gorun/contrib/must"
	"gorun/rendezvous/wire"
)

// allowed lists, for each package of the module, which other packages of the module it may import.
// Tests are free. The table is the architecture: a new arrow is a decision, made here.
var allowed = map[string][]string{
	"cmd/gorun": {"collective", "collective/kernel", "collective/schedule", "collective/verbs",
		"launcher", "launcher/dial", "launcher/discover", "launcher/elastic", "launcher/failure", "launcher/hosts", "launcher/jobs", "launcher/launchers", "launcher/metrics", "launcher/output", "launcher/plan", "launcher/pyenv", "launcher/scheduler", "launcher/shellwords", "launcher/ship", "launcher/ssh", "launcher/survey", "launcher/talk", "launcher/top", "launcher/web", "launcher/why",
		"rendezvous/audit", "rendezvous/resume", "rendezvous/standing", "rendezvous/wire",
		"topology", "topology/doctor", "topology/facts", "topology/picture", "topology/probe",
		"worker", "worker/bench", "worker/cached", "worker/command", "worker/proc", "worker/rankenv", "worker/shipped"},
	"cmd/gorund":           {"worker/command"}, // what it has, every first start on a host waits for
	"worker/command":       {"collective/verbs/ibverbs", "rendezvous/resume", "rendezvous/step", "topology", "topology/doctor", "topology/measure", "topology/picture", "topology/probe", "worker", "worker/bench", "worker/cached", "worker/packed", "worker/proc", "worker/rank"},
	"worker/bench":         {"collective", "collective/kernel", "worker/rank"},
	"launcher":             {"launcher/elastic", "launcher/failure", "launcher/jobs", "launcher/lag", "launcher/mpi", "launcher/plan", "launcher/ssh", "launcher/stall", "launcher/talk", "launcher/why", "rendezvous/liveness", "rendezvous/wire", "topology"},
	"launcher/discover":    {"launcher/hosts", "launcher/output"},
	"launcher/dial":        {"launcher/failure", "launcher/hosts", "launcher/output", "launcher/scheduler", "launcher/ssh", "launcher/talk", "rendezvous/liveness", "rendezvous/resume", "rendezvous/standing", "rendezvous/step"},
	"launcher/elastic":     {},
	"launcher/failure":     {"launcher/elastic", "launcher/hosts", "launcher/output", "topology"},
	"launcher/jobs":        {"launcher/why", "rendezvous/authority", "rendezvous/resume", "rendezvous/standing", "rendezvous/wire"},
	"launcher/launchers":   {"launcher", "launcher/failure", "launcher/jobs", "launcher/why", "rendezvous/authority", "rendezvous/resume", "rendezvous/standing", "rendezvous/wire", "topology"},
	"launcher/top":         {"launcher/jobs", "rendezvous/wire", "topology"},
	"launcher/httpserve":   {"collective/admit"},
	"launcher/web":         {"launcher/httpserve", "launcher/jobs", "launcher/why", "topology"},
	"launcher/why":         {"rendezvous/wire", "topology"},
	"launcher/hosts":       {},
	"launcher/metrics":     {"launcher", "launcher/httpserve", "launcher/jobs", "rendezvous/standing", "rendezvous/wire"},
	"launcher/lag":         {},
	"launcher/mpi":         {"rendezvous/wire"},
	"launcher/plan":        {"launcher/hosts"},
	"launcher/scheduler":   {"launcher/shellwords"},
	"launcher/shellwords":  {},
	"launcher/pyenv":       {"launcher/ship", "launcher/talk", "rendezvous/wire"},
	"launcher/ship":        {"launcher/spread", "rendezvous/wire"},
	"launcher/spread":      {},
	"launcher/ssh":         {"launcher/hosts"},
	"launcher/stall":       {"launcher/why", "rendezvous/wire"},
	"launcher/survey":      {"launcher/failure", "launcher/talk", "topology", "topology/doctor", "topology/measure", "topology/picture", "topology/probe"},
	"launcher/talk":        {"launcher/failure", "launcher/plan", "launcher/ssh", "rendezvous/liveness", "rendezvous/wire"},
	"launcher/output":      {"rendezvous/wire"},
	"rendezvous/wire":      {"topology"},
	"rendezvous/liveness":  {"rendezvous/wire"},
	"rendezvous/epoch":     {"collective/schedule", "rendezvous/wire", "topology"},
	"rendezvous/pause":     {"rendezvous/wire"},
	"rendezvous/authority": {"rendezvous/wire"},
	"rendezvous/gossip":    {"collective/admit", "collective/tcp", "rendezvous/liveness"},
	"rendezvous/keytls":    {},
	"rendezvous/resume":    {"rendezvous/liveness"},
	"rendezvous/audit":     {},
	"rendezvous/standing":  {"collective/admit", "collective/tcp", "rendezvous/audit", "rendezvous/authority", "rendezvous/gossip", "rendezvous/keytls", "rendezvous/liveness", "rendezvous/resume", "rendezvous/wire", "topology"},
	"rendezvous/kvhttp":    {"collective/admit", "rendezvous/keytls"},
	"rendezvous/step":      {"collective/admit", "rendezvous/keytls", "rendezvous/liveness"},
	"topology":             {},
	"topology/measure":     {"collective/admit"},
	"topology/picture":     {"topology"},
	"topology/doctor":      {"topology", "topology/probe"},
	"topology/facts":       {"topology"},
	"topology/probe":       {"topology"},
	"worker": {"collective", "collective/flight", "collective/kernel", "collective/link", "collective/schedule",
		"rendezvous/epoch", "rendezvous/gossip", "rendezvous/liveness", "rendezvous/pause", "rendezvous/wire",
		"topology", "topology/facts", "topology/probe",
		"worker/compat", "worker/loop", "worker/machine", "worker/member", "worker/migrate", "worker/migrate/vmtools", "worker/network",
		"worker/moves", "worker/pauses", "worker/proc", "worker/python", "worker/rankenv", "worker/ranks", "worker/session", "worker/shipped", "worker/shm", "worker/stall", "worker/tune", "worker/signs"},
	"worker/compat":            {"collective/tcp", "rendezvous/kvhttp", "rendezvous/wire", "topology", "worker/loop", "worker/member", "worker/pmi", "worker/rankenv"},
	"worker/cached":            {},
	"worker/shipped":           {"collective/admit", "rendezvous/keytls", "rendezvous/wire", "worker/cached"},
	"worker/counters":          {"worker/session/codec"},
	"worker/loop":              {"rendezvous/wire"},
	"worker/machine":           {"rendezvous/wire", "topology", "topology/facts", "topology/probe", "worker/loop"},
	"worker/member":            {"collective", "collective/link", "rendezvous/epoch", "rendezvous/wire", "topology", "worker/loop"},
	"worker/moves":             {"rendezvous/pause", "rendezvous/wire", "worker/loop", "worker/migrate", "worker/migrate/vmtools"},
	"worker/network":           {"collective/admit", "collective/link", "collective/tcp", "collective/verbs", "collective/verbs/ibverbs", "rendezvous/gossip", "rendezvous/keytls", "rendezvous/wire", "topology", "topology/probe", "worker/loop", "worker/member"},
	"worker/migrate":           {},
	"worker/migrate/vmtools":   {"worker/migrate"},
	"worker/pauses":            {"rendezvous/pause", "rendezvous/wire", "worker/loop"},
	"worker/pmi":               {"collective/admit"},
	"worker/python":            {"rendezvous/wire", "worker/rankenv"},
	"worker/rankenv":           {},
	"worker/ranks":             {"worker/counters", "rendezvous/resume", "rendezvous/wire", "topology", "topology/picture", "worker/compat", "worker/loop", "worker/member", "worker/packed", "worker/proc", "worker/rankenv", "worker/signs", "worker/stacks"},
	"worker/proc":              {},
	"worker/tune":              {"collective/link", "collective/schedule", "rendezvous/epoch", "rendezvous/pause", "rendezvous/wire", "topology", "topology/facts", "worker/loop"},
	"worker/session":           {"collective", "collective/admit", "collective/kernel", "worker/session/codec", "worker/session/slots", "worker/shm"},
	"worker/session/codec":     {"collective", "collective/kernel"},
	"worker/session/slots":     {"collective", "worker/session/codec", "worker/shm"},
	"worker/rank":              {"collective", "collective/kernel", "worker/counters", "worker/session/codec"},
	"worker/stall":             {"collective", "rendezvous/wire", "worker/rankenv", "worker/session"},
	"worker/packed":            {},
	"worker/shm":               {"collective"},
	"worker/signs":             {"rendezvous/wire", "topology/probe", "worker/proc"},
	"worker/stacks":            {"worker/proc"},
	"collective":               {"collective/flight", "collective/kernel", "collective/link", "collective/schedule"},
	"collective/admit":         {},
	"collective/flight":        {},
	"collective/kernel":        {},
	"collective/link":          {"collective/admit", "collective/flight"},
	"collective/tcp":           {},
	"collective/verbs":         {},
	"collective/verbs/ibverbs": {"collective/verbs"},
	"collective/schedule":      {},

	// The extras. Packages without an entry import nothing of the module.
	"contrib/examples/gorank":             {"collective", "collective/kernel", "worker/rank"},
	"contrib/lab/cmd/lab":                 {"contrib/lab"},
	"contrib/kubernetes/gorun-kubernetes": {"contrib/kubernetes"},
	"contrib/tools/rankproto":             {"worker/counters", "worker/session/codec"},
}

// only names the packages that may import a library, and where decisions are pure, what may not appear.
var (
	only = map[string]string{
		"github.com/vmihailenco/msgpack/v5": "rendezvous/wire",
		"github.com/hashicorp/memberlist":   "rendezvous/gossip",
		"golang.org/x/crypto/ssh":           "launcher/ssh",
		"github.com/urfave/cli/v2":          "cmd/gorun",
		"charm.land/bubbletea/v2":           "launcher/top",
	}
	pure          = []string{"rendezvous/epoch", "rendezvous/liveness", "rendezvous/pause", "rendezvous/authority", "launcher/elastic", "launcher/lag", "launcher/plan", "launcher/hosts", "launcher/mpi", "launcher/scheduler", "launcher/stall", "topology", "topology/facts", "topology/picture", "collective/flight", "collective/kernel", "collective/schedule", "worker/migrate", "worker/rankenv", "worker/session/codec"}
	impureImports = []string{"net", "os", "os/exec", "syscall", "math/rand", "math/rand/v2", "log", "log/slog", "sync"}
	impureCalls   = []string{
		"time.Now", "time.Since", "time.Until", "time.Sleep", "time.After", "time.AfterFunc", "time.NewTimer", "time.NewTicker", "time.Tick",
	}
)

func TestImports(t *testing.T) {
	seen := map[string]bool{}
	module := strings.TrimSuffix(reflect.TypeFor[wire.Job]().PkgPath(), "rendezvous/wire")
	sources(t, func(dir, file string, f *ast.File) {
		seen[dir] = true
		may, ok := allowed[dir]
		extra := strings.HasPrefix(dir, "contrib/")
		if !ok && !extra {
			t.Errorf("%s: package is not in the table of allowed imports", dir)
			return
		}
		for _, imp := range f.Imports {
			path := strings.Trim(imp.Path.Value, `"`)
			if inner, ok := strings.CutPrefix(path, module); ok && !slices.Contains(may, inner) {
				t.Errorf("%s imports %s, which the table does not allow", file, inner)
			}
			if strings.HasPrefix(path, module+"contrib") && !extra {
				t.Errorf("%s imports %s: the product does without the extras", file, path)
			}
			if owner, ok := only[path]; ok && owner != dir && !extra {
				t.Errorf("%s imports %s, which is for %s alone", file, path, owner)
			}
			if slices.Contains(pure, dir) && slices.Contains(impureImports, path) {
				t.Errorf("%s imports %s, but %s only decides", file, path, dir)
			}
		}
	})
	for dir := range allowed {
		if !seen[dir] {
			t.Errorf("the table names %s, which does not exist", dir)
		}
	}
}

// TestRules checks what only cmd may do, and what pure packages may not.
func TestRules(t *testing.T) {
	sources(t, func(dir, file string, f *ast.File) {
		if strings.HasPrefix(dir, "contrib") {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				if slices.Contains(pure, dir) {
					t.Errorf("%s starts a goroutine, but %s only decides", file, dir)
				}
			case *ast.SelectorExpr:
				pkg, ok := n.X.(*ast.Ident)
				if !ok {
					return true
				}
				name := pkg.Name + "." + n.Sel.Name
				if !strings.HasPrefix(dir, "cmd/") && slices.Contains([]string{"os.Exit", "log.Fatal", "log.Fatalf", "os.Getenv", "os.LookupEnv", "os.Environ"}, name) {
					t.Errorf("%s uses %s, which is for cmd alone", file, name)
				}
				if slices.Contains(pure, dir) && slices.Contains(impureCalls, name) {
					t.Errorf("%s uses %s, but %s has no clock", file, name, dir)
				}
			}
			return true
		})
	})
}

// sources parses every Go file of the module that is not a test.
func sources(t *testing.T, visit func(dir, file string, f *ast.File)) {
	t.Helper()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, path)
		if d.IsDir() {
			if name := d.Name(); rel != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "build" || strings.HasPrefix(name, "_")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		dir := filepath.ToSlash(filepath.Dir(rel))
		if strings.HasSuffix(dir, "test") { // admittest and its like serve tests
			return nil
		}
		visit(dir, rel, f)
		return nil
	})
	must.Do(t, err)
}

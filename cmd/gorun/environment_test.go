//go:build linux

package main

import (
	"go/ast"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gorun/contrib/must"
	"gorun/launcher/plan"
	"gorun/worker/rankenv"
)

// ownName is what variables of gorun and of Horovod are called.
var ownName = regexp.MustCompile(`^_?(GORUN|HOROVOD)_[A-Z0-9_]*[A-Z0-9]$`)

// readBy finds the names of variables that Python and C read.
var readBy = map[string]*regexp.Regexp{
	".py": regexp.MustCompile(`(?:environ(?:\.get\(|\.setdefault\(|\.pop\(|\[)|getenv\()\s*f?["']([A-Z_a-z0-9]+)|["'](_?(?:GORUN|HOROVOD)_[A-Z0-9_]*[A-Z0-9])["']`),
	".c":  regexp.MustCompile(`getenv\("([A-Z_a-z0-9]+)"`),
	".h":  regexp.MustCompile(`getenv\("([A-Z_a-z0-9]+)"`),
}

// notDocumented are names that the product has, but reads or sets no variable of.
var notDocumented = []string{
	"HOROVOD_SECRET_KEY", // a name of horovod.runner.common.util.secret, whose variable begins with _
	"_GORUN_TENSORFLOW",  // set by the binding for its own library, while that loads
	"_GORUN_CALL_",       // begins the names of the numbered parts of _GORUN_CALL
}

// TestVariablesAreDocumented: the reference has each variable that the code of the product reads.
func TestVariablesAreDocumented(t *testing.T) {
	page := environmentPage()
	found := map[string]string{} // name: where
	for _, root := range []string{"cmd", "collective", "launcher", "rendezvous", "topology", "worker", "contrib/vsphere"} {
		eachDir(t, filepath.Join("../..", root), func(dir string) {
			for file, parsed := range parsed(t, strings.TrimPrefix(dir, "../../"), false) {
				for _, name := range variablesIn(parsed) {
					found[name] = file
				}
			}
		})
	}
	for _, root := range []string{"contrib/python/gorun", "contrib/python/shim", "contrib/c"} {
		err := filepath.WalkDir(filepath.Join("../..", root), func(path string, d fs.DirEntry, err error) error {
			pattern := readBy[filepath.Ext(path)]
			if err != nil || pattern == nil {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range pattern.FindAllStringSubmatch(string(text), -1) {
				found[strings.Join(m[1:], "")] = path
			}
			return err
		})
		must.Do(t, err)
	}
	if len(found) < 60 {
		t.Errorf("found %d variables only: this test looks in the wrong places", len(found))
	}
	for name, where := range found {
		if !strings.Contains(page, "`"+name+"`") && !slices.Contains(notDocumented, name) {
			t.Errorf("%s reads %s, which docs/reference/environment.md lacks", where, name)
		}
	}
}

// TestOwnVariables: ranks inherit none of gorun's own variables, and all others whose names begin as theirs do. What
// looks like an option and is none is named.
func TestOwnVariables(t *testing.T) {
	var names []string
	for _, g := range userVariables(new(jobFlags).table()) {
		for _, v := range g.list {
			names = append(names, v.names...)
		}
	}
	for _, v := range rankenv.Table() {
		names = append(names, v.Name)
	}
	for _, name := range names {
		if strings.HasPrefix(name, "GORUN_") && !plan.Own(name) {
			t.Errorf("%s is not one of gorun's own variables", name)
		}
	}
}

// eachDir visits a directory and those below it that have source files.
func eachDir(t *testing.T, root string, visit func(dir string)) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			if d.Name() == "testdata" {
				return fs.SkipDir
			}
			if files, _ := filepath.Glob(filepath.Join(path, "*.go")); len(files) > 0 {
				visit(path)
			}
		}
		return err
	})
	must.Do(t, err)
}

// variablesIn returns the names of variables that a file reads by a literal, and all literals that are such a name of ours.
func variablesIn(file *ast.File) (names []string) {
	literal := func(e ast.Expr) string {
		if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
			text, _ := strconv.Unquote(l.Value)
			return text
		}
		return ""
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if text := literal(n); ownName.MatchString(text) {
				names = append(names, text)
			}
		case *ast.CallExpr:
			called := ""
			switch f := n.Fun.(type) {
			case *ast.SelectorExpr:
				called = f.Sel.Name
			case *ast.Ident:
				called = f.Name
			}
			if slices.Contains([]string{"Getenv", "LookupEnv", "getenv"}, called) && len(n.Args) == 1 {
				if name := literal(n.Args[0]); name != "" {
					names = append(names, name)
				}
			}
		}
		return true
	})
	return names
}

//go:build linux

package main

import (
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
	sources(t, func(dir, file string, f *ast.File) {
		if dir == "contrib/vsphere" || !strings.HasPrefix(dir, "contrib") {
			for _, name := range variablesIn(f) {
				found[name] = file
			}
		}
	})
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

// variablesIn returns the names of variables that a file reads by a literal, and all literals that are such a name of ours.
func variablesIn(file *ast.File) (names []string) {
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if text, _ := literal(n); ownName.MatchString(text) {
				names = append(names, text)
			}
		case *ast.CallExpr:
			_, called, of := strings.Cut(calledName(n), ".")
			if !of {
				called = calledName(n)
			}
			if slices.Contains([]string{"Getenv", "LookupEnv", "getenv"}, called) && len(n.Args) == 1 {
				if name, ok := literal(n.Args[0]); ok {
					names = append(names, name)
				}
			}
		}
		return true
	})
	return names
}

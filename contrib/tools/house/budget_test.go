package house

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gorun/contrib/must"
)

// budgets are the lines that each part of the tree may have. A limit is raised only in the commit that needs it, with the
// reason, and lowered by whoever takes lines away. Moving lines to another part is no saving.
var budgets = map[string]int{
	// Goal: 83000, and 2900 for what hosts get, spares and stragglers. All packages have been read from top to bottom: fewer lines
	// mean fewer features.
	"core Go":    88550,
	"contrib Go": 8820,  // goal: 9500
	"Python":     20430, // goal: 19500, and 1600 for steps that are done again without a copy, and samples that count once
	"C":          10720, // goal: 9500; a mailbox for messages; Python stands on it: 2,600 lines of Python went
	"tests":      88870, // goal: 88000, and 3000 for the tests of what came later
	"tools":      3580,  // goal: 3000; how a release is cut
	"Makefile":   400,
	"targets":    45,
	"flags":      60,
}

// partsOf returns the budgets that the lines of a file count for.
func partsOf(path string) (parts []string) {
	name, ext := filepath.Base(path), filepath.Ext(path)
	switch {
	case path == "Makefile":
		return []string{"Makefile"}
	case !slices.Contains([]string{".go", ".py", ".c", ".h", ".sh"}, ext):
		return nil
	case strings.HasSuffix(name, "_test.go"), strings.Contains(path, "/tests/"), ext == ".py" && strings.HasPrefix(name, "test_"),
		ext == ".c" && strings.HasPrefix(name, "check_"):
		return []string{"tests"}
	case ext == ".go" && !strings.HasPrefix(path, "contrib/"):
		parts = append(parts, "core Go")
	case ext == ".go":
		parts = append(parts, "contrib Go")
	case ext == ".py" && strings.HasPrefix(path, "contrib/python/gorun/"):
		parts = append(parts, "Python")
	case ext == ".c", ext == ".h":
		parts = append(parts, "C")
	}
	if strings.HasPrefix(path, "contrib/tools/") {
		parts = append(parts, "tools")
	}
	return parts
}

// TestBudgets: the tree has no more lines, targets of make and flags than its budgets.
func TestBudgets(t *testing.T) {
	have := map[string]int{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path = filepath.ToSlash(strings.TrimPrefix(path, root+string(filepath.Separator)))
		if entry.IsDir() {
			if slices.Contains([]string{".git", "build", "bin"}, path) || entry.Name() == "__pycache__" {
				return filepath.SkipDir
			}
			return nil
		}
		parts := partsOf(path)
		if parts == nil || !entry.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		for _, part := range parts {
			have[part] += bytes.Count(text, []byte("\n"))
		}
		return err
	})
	must.Do(t, err)
	have["targets"] = matches(t, "Makefile", `(?m)^## [a-z0-9-]+: `)
	have["flags"] = matches(t, "cmd/gorun/testdata/help/flags.txt", `(?m)^  -`)
	for part, limit := range budgets {
		if n := have[part]; n > limit || n == 0 {
			t.Errorf("%s: %d, and the budget is %d", part, n, limit)
		} else {
			t.Logf("%s: %d of %d", part, n, limit)
		}
	}
}

// matches counts what a pattern finds in a file.
func matches(t *testing.T, path, pattern string) int {
	t.Helper()
	text := must.Read(t, filepath.Join(root, path))
	return len(regexp.MustCompile(pattern).FindAll(text, -1))
}

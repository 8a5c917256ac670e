//go:build linux

package e2etest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gorun/contrib/must"
)

// operationsTested are how many operations the program of Operations calls.
const operationsTested = 18

var resultLine = regexp.MustCompile(`digest \d+ [a-z]+ [0-9a-f]{64}`)

// Operations is a program that calls every operation with 1 element of 4 bytes, and more, up to the number in its argument,
// at most 16 MiB. It prints digests of the results.
func Operations(t *testing.T) (program string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Root(), "testdata/rdma/operations.py"))
	must.Do(t, err)
	return string(text)
}

// Results returns what Operations printed on so many ranks.
func Results(t *testing.T, output string, ranks int) string {
	t.Helper()
	lines := resultLine.FindAllString(output, -1)
	if len(lines) != ranks*operationsTested {
		t.Fatalf("%d results of %d operations on %d ranks:\n%s", len(lines), operationsTested, ranks, output)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

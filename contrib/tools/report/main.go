// Command report reads what go test -json writes and tells people what they want to know: a line for each
// package, all output of what failed, and every skipped test with its reason.
//
//	go test -json ./... | report -skips build/skips
//
// The tests that took longest come last. It exits with 1 if anything failed, and appends the skipped tests to the file. With -figures it appends what
// tests that passed have logged, which is otherwise seen by nobody. With -failed it writes
// which tests failed to a file, for a second run of these alone; the file stays away if more failed than
// their names can tell: a package that did not build, or that ended in the middle of a test. It stays away
// too if the race detector found something: a race is a fault however rarely it shows.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// The tests that a report calls slow.
const (
	slowTests   = 20
	slowSeconds = 10.0
)

func main() {
	path := flag.String("skips", "", "append skipped tests to `FILE`")
	figures := flag.String("figures", "", "append what passed tests have logged to `FILE`")
	failed := flag.String("failed", "", "write the names of failed tests to `FILE`")
	flag.Parse()
	ok, err := run(os.Stdin, os.Stdout, *path, *figures, *failed)
	if err != nil {
		fmt.Fprintln(os.Stderr, "report: error:", err)
		os.Exit(1)
	}
	if !ok {
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer, path, figures, failed string) (ok bool, err error) {
	r := &report{out: out, output: map[string]*strings.Builder{}, tests: map[string]int{}}
	if err := r.read(in); err != nil {
		return false, err
	}
	for _, skip := range r.skips {
		fmt.Fprintln(out, "skipped", skip)
	}
	for _, test := range r.fails {
		fmt.Fprintln(out, "failed", test)
	}
	for _, s := range r.slowest() {
		fmt.Fprintf(out, "slow %s: %.0fs\n", s.test, s.seconds)
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, len(r.skips))
	if err := errors.Join(appendLines(path, r.skips), appendLines(figures, r.figures)); err != nil {
		return false, err
	}
	if failed != "" {
		if err := os.Remove(failed); err != nil && !os.IsNotExist(err) {
			return false, err
		}
		if len(r.fails) > 0 && !r.broken {
			if err := os.WriteFile(failed, []byte(strings.Join(r.names, "\n")+"\n"), 0o644); err != nil {
				return false, err
			}
		}
	}
	return r.failed == 0, nil
}

// appendLines adds lines to a file, if there are any and the file has a name.
func appendLines(path string, lines []string) error {
	if path == "" || len(lines) == 0 {
		return nil
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, strings.Join(lines, "\n"))
	return errors.Join(err, f.Close())
}

// event is a line of go test -json; see go doc test2json.
type event struct {
	Action     string
	Package    string
	ImportPath string // of build output
	Test       string
	Elapsed    float64
	Output     string
}

type report struct {
	out     io.Writer
	output  map[string]*strings.Builder // of each test, and of each package under its path
	tests   map[string]int              // how many passed in each package
	skips   []string
	figures []string // what each test that passed has logged, behind its name
	fails   []string // with their packages
	names   []string // of failed tests, subtests not among them
	broken  bool     // something failed that a second run does not excuse
	times   []timed  // of tests, subtests not among them
	passed  int
	failed  int // tests and packages
}

type timed struct {
	test    string
	seconds float64
}

// slowest returns the tests that took longest, at most slowTests of those that took slowSeconds or more.
func (r *report) slowest() []timed {
	all := slices.DeleteFunc(slices.Clone(r.times), func(t timed) bool { return t.seconds < slowSeconds })
	slices.SortStableFunc(all, func(a, b timed) int { return cmp.Compare(b.seconds, a.seconds) })
	return all[:min(len(all), slowTests)]
}

func (r *report) read(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(r.out, lines.Text()) // what go itself has to say
			continue
		}
		r.add(e)
	}
	return lines.Err()
}

func (r *report) add(e event) {
	key := e.Package
	if e.Test != "" {
		key += "." + e.Test
	}
	if (e.Action == "pass" || e.Action == "fail") && e.Test != "" && !strings.Contains(e.Test, "/") {
		r.times = append(r.times, timed{key, e.Elapsed})
	}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		if r.output[key] == nil {
			r.output[key] = &strings.Builder{}
		}
		r.output[key].WriteString(e.Output)
		return
	case "fail", "build-fail":
		r.failed++
		if e.Action == "fail" {
			fmt.Fprintf(r.out, "FAIL %s (%.1fs)\n%s", key, e.Elapsed, r.text(key))
		}
		if strings.Contains(r.text(key), "WARNING: DATA RACE") {
			r.broken = true
		}
		if e.Test != "" {
			r.fails = append(r.fails, key)
			if !strings.Contains(e.Test, "/") {
				r.names = append(r.names, e.Test)
			}
			break
		}
		if r.unfinished(e.Package) || !slices.ContainsFunc(r.fails, func(key string) bool { return strings.HasPrefix(key, e.Package+".") }) {
			r.broken = true
		}
	case "pass":
		if e.Test != "" {
			r.tests[e.Package]++
			r.passed++
			if lines := logged(r.text(key)); len(lines) > 0 {
				r.figures = append(append(r.figures, key), lines...)
			}
			break
		}
		fmt.Fprintf(r.out, "ok   %s: %d tests in %.1fs\n", e.Package, r.tests[e.Package], e.Elapsed)
	case "skip":
		if e.Test != "" { // a package without tests is also called skipped
			r.skips = append(r.skips, key+": "+reason(r.text(key)))
		}
	default:
		return
	}
	delete(r.output, key)
}

// unfinished prints the output of tests that had no end, and tells whether there were any: one of them
// took the package with it.
func (r *report) unfinished(pkg string) bool {
	var keys []string
	for key := range r.output {
		if strings.HasPrefix(key, pkg+".") {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		fmt.Fprintf(r.out, "---- %s did not end\n%s", key, r.text(key))
		delete(r.output, key)
	}
	return len(keys) > 0
}

func (r *report) text(key string) string {
	if b := r.output[key]; b != nil {
		return b.String()
	}
	return ""
}

// logged is what t.Log wrote: go test indents it, and nothing else of its own but how subtests ended.
func logged(output string) (lines []string) {
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "    ") && !strings.HasPrefix(strings.TrimSpace(line), "--- ") {
			lines = append(lines, strings.TrimRight(line, "\n"))
		}
	}
	return lines
}

// reason is what a skipped test said: its output without the lines that go test adds.
func reason(output string) string {
	var said []string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "===") && !strings.HasPrefix(line, "---") {
			said = append(said, line)
		}
	}
	return strings.Join(said, " ")
}

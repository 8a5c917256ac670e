// Command report runs go test -json, and prints a summary: a line for each package and each slow test, all output of
// failed tests, and every skipped test with its reason.
//
//	report -skips build/skips -again build/again -packages "$(go list ./...)" go test -json -race
//
// It exits with 1 if anything failed. It appends skipped tests to the file of -skips.
//
// With -again, tests that failed beside others run a second time, alone, and pass if they pass then: those that
// again.txt lists, with what makes them fail on a busy machine, and two others. Meanwhile other reports with a file in
// the same directory wait, once their own tests have ended. The names are appended to the file. No test runs a third
// time: one whose name is in the file already has failed. A test with a data race has failed too, because the race is a
// fault however rarely it shows, and so has a package that did not build or that ended in the middle of a test.
package main

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// slowSeconds is how long a test takes that a report calls slow.
const slowSeconds = 10.0

// options are the flags and arguments of the command line.
type options struct {
	skips, again string // files
	packages     []string
	command      []string // go test with its flags
}

func main() {
	var o options
	flag.StringVar(&o.skips, "skips", "", "append skipped tests to `FILE`")
	flag.StringVar(&o.again, "again", "", "run a few failed tests again, alone, and append their names to `FILE`")
	packages := flag.String("packages", "", "the `PACKAGES` to test")
	flag.Parse()
	o.command, o.packages = flag.Args(), strings.Fields(*packages)
	ok, err := o.run(os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "report: error:", err)
	}
	if !ok {
		os.Exit(1)
	}
}

// run reports the tests, and the tests that run again.
func (o *options) run(out io.Writer) (ok bool, err error) {
	release, err := o.lock(syscall.LOCK_SH)
	if err != nil {
		return false, err
	}
	r, err := o.test(out, o.packages)
	release()
	if err != nil || r.failed == 0 || o.again == "" {
		return err == nil && r.failed == 0, err
	}
	if release, err = o.lock(syscall.LOCK_EX); err != nil {
		return false, err
	}
	defer release()
	lines, err := r.repeatable(o.again)
	if err != nil || len(lines) == 0 {
		return false, err
	}
	if err := appendLines(o.again, lines); err != nil {
		return false, err
	}
	for _, pkg := range slices.Sorted(maps.Keys(r.failedIn)) {
		tests := r.failedIn[pkg]
		fmt.Fprintf(out, "Again, alone, in %s: %s\n", pkg, strings.Join(tests, " "))
		flags := []string{"-timeout=20m", "-count=1", "-parallel=1", "-run", "^(" + strings.Join(tests, "|") + ")$", pkg}
		if r, err := o.test(out, flags); err != nil || r.failed > 0 || r.passed == 0 {
			return false, err
		}
	}
	return true, nil
}

// lock keeps tests apart: reports that run side by side share the lock while they run their tests, and each holds it
// alone while it runs tests again.
func (o *options) lock(how int) (release func(), err error) {
	if o.again == "" {
		return func() {}, nil
	}
	f, err := os.OpenFile(filepath.Join(filepath.Dir(o.again), "again.lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), how); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	return func() { f.Close() }, nil
}

// test runs go test with more arguments, and reports its output.
func (o *options) test(out io.Writer, args []string) (*report, error) {
	r := &report{out: out, output: map[string]*strings.Builder{}, tests: map[string]int{}, failedIn: map[string][]string{}}
	cmd := exec.Command(o.command[0], slices.Concat(o.command[1:], args)...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("run tests: %w", err)
	}
	if err := r.read(stdout); err != nil {
		return nil, err
	}
	if err := cmd.Wait(); err != nil && r.failed == 0 {
		return nil, fmt.Errorf("run tests: %w", err)
	}
	r.summary()
	return r, appendLines(o.skips, r.skips)
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
	out      io.Writer
	output   map[string]*strings.Builder // of each test, and of each package under its path
	tests    map[string]int              // how many passed in each package
	skips    []string
	fails    []string            // with their packages
	failedIn map[string][]string // the failed tests of each package, subtests not among them
	broken   bool                // something failed that a second run cannot mend
	passed   int
	failed   int // tests and packages
}

// summary prints the lines that follow all tests.
func (r *report) summary() {
	for _, skip := range r.skips {
		fmt.Fprintln(r.out, "skipped", skip)
	}
	for _, test := range r.fails {
		fmt.Fprintln(r.out, "failed", test)
	}
	fmt.Fprintf(r.out, "%d passed, %d failed, %d skipped\n", r.passed, r.failed, len(r.skips))
}

// known lists the tests that may run again: a line of the name and its cause each, and comments.
//
//go:embed again.txt
var known string

const (
	// maxUnknown is how many of a make may do so that are not listed, and unknown is what the file says of them.
	maxUnknown = 2
	unknown    = " WITHOUT A KNOWN CAUSE: mend it, or list it in contrib/tools/report/again.txt with its cause"
)

// repeatable returns a line for each failed test, if all of them may run again. The file lists the tests that already did.
func (r *report) repeatable(file string) (lines []string, err error) {
	if r.broken {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	before, left := strings.Fields(string(text)), maxUnknown-strings.Count(string(text), unknown)
	for pkg, tests := range r.failedIn {
		for _, test := range tests {
			name := pkg + "." + test
			if slices.Contains(before, name) {
				fmt.Fprintf(r.out, "%s has run again before: it fails\n", name)
				return nil, nil
			}
			if !strings.Contains("\n"+known, "\n"+name+": ") {
				name += unknown
				left--
				fmt.Fprintln(r.out, name)
			}
			lines = append(lines, name)
		}
	}
	slices.Sort(lines)
	if left < 0 {
		fmt.Fprintf(r.out, "more than %d tests without a known cause may not run again\n", maxUnknown)
		return nil, nil
	}
	return lines, nil
}

func (r *report) read(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(r.out, lines.Text()) // go's own messages
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
	top := e.Test != "" && !strings.Contains(e.Test, "/") // no subtest
	if e.Action == "pass" && top && e.Elapsed >= slowSeconds {
		fmt.Fprintf(r.out, "slow %s: %.0fs\n", key, e.Elapsed)
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
			if top {
				r.failedIn[e.Package] = append(r.failedIn[e.Package], e.Test)
			}
			break
		}
		if r.unfinished(e.Package) || len(r.failedIn[e.Package]) == 0 {
			r.broken = true
		}
	case "pass":
		if e.Test != "" {
			r.tests[e.Package]++
			r.passed++
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

// unfinished prints the output of tests that did not end, and reports whether there were any: one of them
// ended the whole package.
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

// reason returns why a test was skipped: its output without the lines that go test adds.
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

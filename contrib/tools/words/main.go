// Command words measures how plainly the comments of Go packages read: how often, in 10,000 words of comment,
// each kind of phrase occurs that reads as a translation, and which words occur that ARCHITECTURE's glossary replaces.
//
//	go run ./contrib/tools/words [-v] [-tests] [DIRECTORY ...]
//
// Without directories it takes every package of the module. -v prints the lines, -tests reads test files instead of the
// others. The package's test holds every package, and its tests, to the limits below.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A phrase is one kind of wording that is counted.
type phrase struct {
	name  string
	match *regexp.Regexp
	limit float64 // occurrences allowed in 10,000 words, beyond the slack
	tests float64 // the same in test files, which describe what users see and read
}

// phrases are right now and then, so each has a limit instead of a ban.
var phrases = []phrase{
	{"that of", regexp.MustCompile(`(?i)\b(that of|those (that|of|who|which)|that which)\b`), 8, 40},
	{"whom", regexp.MustCompile(`(?i)\b(whom|whoever|whomever)\b`), 1, 3},
	{"of which", regexp.MustCompile(`(?i)\b(of|by|from|with|over|to) which\b`), 8, 40},
	{"told", regexp.MustCompile(`(?i)\b(tell|tells|told|say|says|said)\b`), 15, 30},
	{"nobody", regexp.MustCompile(`(?i)\b(nobody|anybody|somebody)\b`), 2, 3},
	{"is that", regexp.MustCompile(`(?i)^\w+ is that\b|\b(is|are) since when\b|\bis for how long\b`), 0, 5},
}

// old are words that the glossary in ARCHITECTURE replaces.
var old = regexp.MustCompile(`(?i)\b(` + strings.Join([]string{
	`stands? still`, `standing still`, `hands? in`, `handed in`, `of no account`, `newcomers?`, `guardians?`, `bequests?`, `bequeaths?`,
	`bequeathed`, `heirs?`, `standing daemons?`, `accus(e|es|ed|ation|ations)`, `foretells?`, `foretold`, `last words`, `farewells?`,
	`strangers?`, `quests?`, `refits?`, `whereabouts`, `lonely`,
}, "|") + `)\b`)

// slack is how often each phrase may occur in any package, however few words it has.
const slack = 2

// A line is a place in a comment.
type line struct {
	pos  token.Position
	text string
}

// count is what the comments of a package hold.
type count struct {
	tests   bool // of test files
	words   int
	phrases [][]line // by index in phrases
	old     []line
}

// rate returns the occurrences of a phrase in 10,000 words.
func (c *count) rate(phrase int) float64 {
	return float64(len(c.phrases[phrase])) / float64(max(c.words, 1)) * 1e4
}

// excess describes what goes beyond the limits, one line each.
func (c *count) excess() (lines []string) {
	for i, p := range phrases {
		limit := p.limit
		if c.tests {
			limit = p.tests
		}
		if len(c.phrases[i]) > slack && c.rate(i) > limit {
			lines = append(lines, fmt.Sprintf("%q occurs %d times, %.1f in 10,000 words; the limit is %.0f",
				p.name, len(c.phrases[i]), c.rate(i), limit))
		}
	}
	for _, l := range c.old {
		lines = append(lines, fmt.Sprintf("%s: old word, see the glossary: %s", l.pos, l.text))
	}
	return lines
}

// read counts the comments of the Go files in a directory, of tests or of the others.
func read(dir string, tests bool) (*count, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	c := &count{tests: tests, phrases: make([][]line, len(phrases))}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") != tests {
			continue
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, group := range f.Comments {
			c.add(fset, group)
		}
	}
	return c, nil
}

// add counts one comment. A phrase that a line break divides is found too.
func (c *count) add(fset *token.FileSet, group *ast.CommentGroup) {
	text := strings.Join(strings.Fields(group.Text()), " ")
	c.words += len(strings.Fields(text))
	at := func(m []int) line {
		return line{fset.Position(group.Pos()), text[max(0, m[0]-40):min(len(text), m[1]+40)]}
	}
	for i, p := range phrases {
		for _, m := range p.match.FindAllStringIndex(text, -1) {
			c.phrases[i] = append(c.phrases[i], at(m))
		}
	}
	for _, m := range old.FindAllStringIndex(text, -1) {
		c.old = append(c.old, at(m))
	}
}

// packages returns the directories below root that hold Go files.
func packages(root string) (dirs []string, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "build") {
			return filepath.SkipDir
		}
		if dir := filepath.Dir(path); strings.HasSuffix(name, ".go") && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
		return nil
	})
	return dirs, err
}

func run(dirs []string, tests, verbose bool) error {
	if len(dirs) == 0 {
		var err error
		if dirs, err = packages("."); err != nil {
			return err
		}
	}
	fmt.Printf("%-26s %7s", "in 10,000 words", "words")
	for _, p := range phrases {
		fmt.Printf(" %9s", p.name)
	}
	fmt.Printf(" %9s\n", "old words")
	for _, dir := range dirs {
		c, err := read(dir, tests)
		if err != nil {
			return err
		}
		fmt.Printf("%-26s %7d", dir, c.words)
		for i := range phrases {
			fmt.Printf(" %9.1f", c.rate(i))
		}
		fmt.Printf(" %9d\n", len(c.old))
		if verbose {
			for _, l := range slices.Concat(append(c.phrases, c.old)...) {
				fmt.Printf("\t%s: %s\n", l.pos, l.text)
			}
		}
	}
	return nil
}

func main() {
	verbose := flag.Bool("v", false, "print the lines")
	tests := flag.Bool("tests", false, "read test files")
	flag.Parse()
	if err := run(flag.Args(), *tests, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, "words: error:", err)
		os.Exit(1)
	}
}

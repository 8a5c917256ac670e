// Command metrics prints figures of this module's source, in a table to compare later changes with.
//
//	make metrics
//
// All figures but the lines of tests leave out test files, testdata and build. The rules:
//
//   - A line is a line of the file; a code line of Go has a token on it that is not a comment.
//   - The length of a function is the number of lines from its "func" to its last brace, function literals included.
//   - A big type's fields are the fields in its declaration, an embedded type as one; its files are the files with its
//     methods. "In all" also counts what it has from embedded types of this module.
//   - An arrow leads from a file to another file of its package if it uses a package-level declaration, a method or a field of
//     that file. An arrow is in a circle if other arrows lead back: neither file can be read, tested or moved without the
//     other. A greedy search orders the files so that few arrows lead up, against the order. The number of uses does not
//     count.
//   - A named duration is a constant or variable of type time.Duration with a fixed value, in a function or
//     outside. Limits that decide whether a host is there belong in liveness.Timing. So the table
//     lists the other durations of packages that import package liveness, and of package ssh, which reaches hosts
//     before any daemon runs there: each of them should be about something else.
//   - An exported type name in several packages counts once for each name. Interfaces are left out, as a consumer names
//     one for what it consumes, and so are "Options", "Config" and "Error", which Go uses with the package's name.
package main

import (
	"flag"
	"fmt"
	"os"
)

// bigTypes are the types that must not grow again.
var bigTypes = []string{
	"worker.daemon", "collective.op", "launcher.job", "launcher.state", "collective.Engine", "collective/link.Link", "collective/link.link",
	"launcher.host", "launcher.Spec", "rendezvous/wire.Job", "worker/ranks.Ranks", "worker/ranks.Starter",
}

// folders are the folders whose files' arrows are counted, each package by itself.
var folders = []string{"cmd/gorun", "worker", "launcher", "collective"}

// liveness is the package that decides whether a host is there. Its type Timing holds the limits.
const liveness = "rendezvous/liveness"

// reaching is a package that does not use liveness, and has limits of its own for hosts.
const reaching = "launcher/ssh"

// maxLine is the width of a line that needs no scrolling.
const maxLine = 120

func main() {
	root := flag.String("root", ".", "the module's `DIRECTORY`")
	up := flag.Bool("up", false, "list the arrows that lead up")
	longest := flag.Int("longest", 8, "list so `MANY` of the longest functions")
	flag.Parse()
	if err := run(*root, *longest, *up); err != nil {
		fmt.Fprintln(os.Stderr, "metrics: error:", err)
		os.Exit(1)
	}
}

func run(root string, longest int, up bool) error {
	if err := os.Chdir(root); err != nil {
		return err
	}
	packages, err := load("./...")
	if err != nil {
		return err
	}
	c := &count{types: map[string]*bigType{}, names: map[string][]string{}, arrows: map[string]arrows{}}
	if err := c.lines(); err != nil {
		return err
	}
	for _, p := range packages {
		c.add(p)
	}
	c.print(os.Stdout, longest, up)
	return nil
}

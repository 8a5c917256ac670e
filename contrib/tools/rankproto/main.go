// Command rankproto writes the numbers of the rank protocol into the bindings for Python and C, so that they have one
// source: the tables of worker/session/codec and worker/counters.
//
//	go generate ./worker/session/codec
//
// It takes files, or directories of them. In each file it replaces what is between a line with "begin table:" and the
// next with "end table". The first says which table, and how:
//
//	# begin table: kinds               NAME = 1  # doc
//	# begin table: elements bytes          NAME: 4,
//	# begin table: codings texts           "name": 1,
//	/* begin table: kinds */           NAME = 1, /* doc */
//	/* begin table: kinds GORUN_ */    GORUN_NAME = 1, /* doc */
//	/* begin table: limits define */   #define NAME 1 /* doc */
//	/* begin table: elements bytes */  4,
//
// The package's test fails if a file in the tree is not what the command would write.
package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gorun/worker/counters"
	"gorun/worker/session/codec"
)

func main() {
	for _, root := range os.Args[1:] {
		if err := each(root, write); err != nil {
			fmt.Fprintln(os.Stderr, "rankproto:", err)
			os.Exit(1)
		}
	}
}

// each calls f for every source file of a binding.
func each(root string, f func(path string) error) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !slices.Contains([]string{".py", ".c", ".h"}, filepath.Ext(path)) {
			return err
		}
		return f(path)
	})
}

func write(path string) error {
	old, now, err := read(path)
	if err != nil || bytes.Equal(old, now) {
		return err
	}
	if err := os.WriteFile(path, now, 0o644); err != nil {
		return fmt.Errorf("write tables: %w", err)
	}
	return nil
}

// read returns what is in a file and what should be.
func read(path string) (old, now []byte, err error) {
	if old, err = os.ReadFile(path); err != nil {
		return nil, nil, fmt.Errorf("read tables: %w", err)
	}
	var out strings.Builder
	inside := false
	for line := range strings.Lines(string(old)) {
		begins, ends := marks(line, "begin table: "), marks(line, "end table")
		if begins == inside && (begins || ends) || ends && !inside {
			return nil, nil, fmt.Errorf("%s: a table begins or ends out of turn: %s", path, strings.TrimSpace(line))
		}
		if ends {
			inside = false
		}
		if !inside {
			out.WriteString(line)
		}
		if begins {
			inside = true
			text, err := table(path, line)
			if err != nil {
				return nil, nil, fmt.Errorf("%s: %w", path, err)
			}
			out.WriteString(text)
		}
	}
	if inside {
		return nil, nil, fmt.Errorf("%s: a table has no end", path)
	}
	return old, []byte(out.String()), nil
}

// marks reports whether a line is a comment that begins with a mark.
func marks(line, mark string) bool {
	line = strings.TrimSpace(line)
	return strings.HasPrefix(line, "# "+mark) || strings.HasPrefix(line, "/* "+mark)
}

// table returns the lines that belong after one that begins a table.
func table(path, line string) (string, error) {
	indent := line[:len(line)-len(strings.TrimLeft(line, " \t"))]
	_, wanted, _ := strings.Cut(line, "begin table: ")
	words := strings.Fields(strings.TrimSuffix(strings.TrimSpace(wanted), "*/"))
	tables := append(codec.Tables(), counters.Table())
	i := slices.IndexFunc(tables, func(t codec.Table) bool { return len(words) > 0 && t.Name == words[0] })
	if i < 0 || len(words) > 2 {
		return "", fmt.Errorf("unknown table %q", wanted)
	}
	how := ""
	if len(words) == 2 {
		how = words[1]
	}
	form := inC
	if filepath.Ext(path) == ".py" {
		form = inPython
	}
	var out strings.Builder
	for _, r := range tables[i].Rows {
		text, err := form(r, how)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "%s%s\n", indent, text)
	}
	return out.String(), nil
}

func inPython(r codec.Row, how string) (string, error) {
	text := fmt.Sprintf("%s = %d", r.Name, r.Value)
	switch {
	case how == "bytes" && r.Bytes > 0:
		return fmt.Sprintf("%s: %d,", r.Name, r.Bytes), nil
	case how == "texts" && r.Text != "":
		return fmt.Sprintf("%q: %d,", r.Text, r.Value), nil
	case how != "":
		return "", fmt.Errorf("%s cannot be written as %s", r.Name, how)
	case r.Doc != "":
		text += "  # " + r.Doc
	}
	return text, nil
}

func inC(r codec.Row, how string) (string, error) {
	value := fmt.Sprint(r.Value)
	if r.Value > math.MaxInt32 {
		value += "u"
	}
	text := fmt.Sprintf("%s = %s,", r.Name, value)
	switch {
	case how == "bytes" && r.Bytes > 0:
		return fmt.Sprintf("%d, /* %s */", r.Bytes, strings.ToLower(r.Name)), nil
	case how == "define":
		text = "#define " + r.Name + " " + value
	case strings.HasSuffix(how, "_"):
		text = how + text
	case how != "":
		return "", fmt.Errorf("%s cannot be written as %s", r.Name, how)
	}
	if r.Doc != "" {
		text += " /* " + r.Doc + " */"
	}
	return text, nil
}

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"

	"gorun/launcher"
	"gorun/launcher/pyenv"
	"gorun/launcher/ship"
	"gorun/rendezvous/wire"
)

// shipTable binds the flags that have hosts get the program.
func (o *jobFlags) shipTable() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "ship", Destination: &o.ship, Usage: "have hosts get the directory of the script, or the git worktree that it is in, and run the ranks there; what git ignores, environments and secrets stay here"},
		&cli.PathFlag{Name: "ship-dir", Destination: &o.shipDir, Usage: "have hosts get this `DIRECTORY`, as --ship does"},
		&cli.StringFlag{Name: "python", Destination: &o.python, Usage: "have hosts get an environment of Python with the packages of `ENV`, by uv: a requirements.txt, a pyproject.toml with its uv.lock, or auto for what is active here"},
	}
}

// ships reports whether hosts get the program.
func (o *jobFlags) ships() bool { return o.ship || o.shipDir != "" }

// brought returns what the job brings to its hosts, nil for what it does not. The notes are for the user.
func (o *jobFlags) brought(ctx context.Context, programs []program) (*wire.Tree, *pyenv.Source, []string, error) {
	tree, notes, err := o.collect(ctx, programs)
	if err != nil {
		return nil, nil, nil, err
	}
	packages, more, err := o.packages(ctx, programs)
	return tree, packages, append(notes, more...), err
}

// collect returns the files that hosts get, nil if none. The notes are for the user.
func (o *jobFlags) collect(ctx context.Context, programs []program) (*wire.Tree, []string, error) {
	if r := detachedOf(ctx).Request(); r != nil {
		return r.Tree, nil, nil // its user has read the notes
	}
	if !o.ships() {
		return nil, nil, nil
	}
	dir, err := o.shipped(ctx, programs)
	if err != nil {
		return nil, nil, err
	}
	tree, notes, err := ship.Collect(ctx, dir)
	if err != nil {
		return nil, nil, &usageError{fmt.Errorf("--ship: %w", err), ""}
	}
	for _, p := range programs[1:] {
		if below, err := filepath.Rel(dir, p.Dir); err != nil || !filepath.IsLocal(below) {
			notes = append(notes, fmt.Sprintf("%s, where another program runs, is not sent", p.Dir))
		}
	}
	for i, note := range notes {
		notes[i] = "gorun: note: --ship: " + note
	}
	return tree, notes, nil
}

// shipped returns the directory that hosts get, and resolves links in the programs' working directories, as it does in that.
func (o *jobFlags) shipped(ctx context.Context, programs []program) (dir string, err error) {
	for i, p := range programs {
		if real, err := filepath.EvalSymlinks(p.Dir); err == nil {
			programs[i].Dir = real
		}
	}
	dir = programs[0].Dir
	script, err := scriptOf(programs[0].Program)
	if err != nil {
		return "", &usageError{fmt.Errorf("--ship: %w", err), "name the script as on this machine"}
	}
	if o.shipDir != "" {
		dir = o.shipDir
	} else if script != "" {
		dir = filepath.Dir(script)
	}
	dir, err = filepath.Abs(dir)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if info, statErr := os.Stat(dir); err == nil && statErr == nil && !info.IsDir() {
		err = fmt.Errorf("%s: not a directory", dir)
	}
	if err != nil {
		return "", &usageError{fmt.Errorf("--ship: %w", err), ""}
	}
	home, _ := os.UserHomeDir()
	tooMuch := func(dir string) bool { return dir == "/" || dir == home }
	if top := ship.Worktree(ctx, dir); o.shipDir == "" && top != "" {
		dir = top
	} else if from := programs[0].Dir; o.shipDir == "" && strings.HasPrefix(dir, from+"/") && !tooMuch(from) {
		dir = from // the script finds other files from there
	}
	if tooMuch(dir) {
		return "", &usageError{fmt.Errorf("--ship would send all of %s", dir), "--ship-dir names the directory of the program"}
	}
	return dir, nil
}

// scriptOf returns the path of the script that a program runs: the first of its words that is a file here, but for a program that
// is installed. It returns "" if there is none, and an error for a script of Python that is not here.
func scriptOf(p launcher.Program) (string, error) {
	for i, word := range p.Argv {
		name := word
		if !filepath.IsAbs(word) {
			name = filepath.Join(p.Dir, word)
		}
		switch info, err := os.Stat(name); {
		case word == "-m" || word == "-c":
			return "", nil
		case strings.HasPrefix(word, "-"), i == 0 && !strings.Contains(word, "/"):
		case err == nil && info.Mode().IsRegular() && !interpreter(name) && (i > 0 || strings.HasPrefix(name, p.Dir+"/")):
			return name, nil
		case err != nil && strings.HasSuffix(word, ".py"):
			return "", fmt.Errorf("%s is not in %s", word, p.Dir)
		}
	}
	return "", nil
}

// interpreter reports whether a program is one of an environment of Python.
func interpreter(name string) bool {
	_, err := os.Stat(filepath.Join(filepath.Dir(filepath.Dir(name)), "pyvenv.cfg"))
	return err == nil || isPython.MatchString(filepath.Base(name))
}

var isPython = regexp.MustCompile(`^python(3(\.\d+)?)?$`)

// describeGiven returns what a dry run says of what hosts get. There may be none of either.
func describeGiven(t *wire.Tree, packages *pyenv.Source) (text string) {
	if t != nil {
		all := make([]int, len(t.Files))
		for i := range all {
			all[i] = i
		}
		text = fmt.Sprintf("hosts get %s: %d files, %.1f MB\n", t.Root, len(t.Files), float64(t.Bytes(all))/1e6)
	}
	if packages != nil {
		text += fmt.Sprintf("hosts get an environment of Python with %s\n", packages.Has)
	}
	return text
}

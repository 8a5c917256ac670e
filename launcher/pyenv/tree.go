package pyenv

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"gorun/launcher/ship"
	"gorun/rendezvous/wire"
)

const treeFile = "tree"

// untouched is the time of all files that are listed: what has another has changed since.
var untouched = time.Unix(1_000_000_000, 0)

// save lists the files of env in a directory.
func save(ctx context.Context, dir string) error {
	root, tree := filepath.Join(dir, "env"), &wire.Tree{Root: "/"} // env has another place later
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		below, relErr := filepath.Rel(root, name)
		if err = errors.Join(err, relErr, ctx.Err()); err != nil || ofVenv.MatchString(below) {
			return err
		}
		if entry.IsDir() {
			if entry.Name() == "__pycache__" { // it may be another Python's
				return fs.SkipDir
			}
			return nil
		}
		f, err := ship.Entry(root, below, entry)
		if err == nil && f.Link == "" {
			if err = os.Chtimes(name, untouched, untouched); err == nil {
				f.Hash, err = ship.Hash(name, f.Size)
			}
		}
		tree.Files = append(tree.Files, f)
		return err
	})
	if err != nil {
		return err
	}
	text, err := wire.Marshal(&wire.Python{Tree: tree})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, treeFile), text, 0o600)
}

// ofVenv are files that uv makes for the Python that is here, before any package.
var ofVenv = regexp.MustCompile(`^(\.gitignore|\.lock|CACHEDIR\.TAG|pyvenv\.cfg|bin/(python(3(\.\d+t?)?)?|activate(\.(bat|csh|fish|nu|ps1|xsh))?|activate_this\.py|(deactivate|pydoc)\.bat))$`)

// saved returns the files of an environment that was made before, nil if there is none or if it has changed since.
func saved(at string) *wire.Tree {
	text, _ := os.ReadFile(filepath.Join(at, treeFile))
	m, err := wire.Unmarshal(text)
	p, is := m.(*wire.Python)
	if err != nil || !is || p.Tree == nil {
		return nil
	}
	p.Tree.Root = filepath.Join(at, "env")
	for _, f := range p.Tree.Files {
		info, err := os.Lstat(filepath.Join(p.Tree.Root, f.Path))
		if err != nil || f.Link == "" && (info.Size() != f.Size || !info.ModTime().Equal(untouched)) {
			return nil
		}
	}
	return p.Tree
}

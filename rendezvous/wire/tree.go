package wire

import (
	"bytes"
	"compress/flate"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vmihailenco/msgpack/v5"
)

// Tree is a directory of the launcher's machine, which every host of the job gets before its ranks start.
type Tree struct {
	Root  string     `msgpack:"root"` // its path on the launcher's machine
	Files []TreeFile `msgpack:"files"`
}

// TreeFile is a file in a Tree, or a symbolic link.
type TreeFile struct {
	Path string `msgpack:"p"` // below Root
	Size int64  `msgpack:"s"`
	Hash []byte `msgpack:"h"` // SHA-256 of what it holds; none for a link
	Exec bool   `msgpack:"x"` // it may be executed
	Link string `msgpack:"l"` // where a link leads to
}

// mostTree bounds a list of files that is unpacked.
const mostTree = 64 << 20

// plainTree is a Tree without methods.
type plainTree Tree

// MarshalBinary implements encoding.BinaryMarshaler, for msgpack. It packs the tree by deflate, since the list of files is
// long.
func (t *Tree) MarshalBinary() ([]byte, error) {
	var packed bytes.Buffer
	w, err := flate.NewWriter(&packed, flate.BestSpeed)
	if err == nil {
		err = errors.Join(msgpack.NewEncoder(w).Encode((*plainTree)(t)), w.Close())
	}
	return packed.Bytes(), err
}

// UnmarshalBinary implements encoding.BinaryUnmarshaler.
func (t *Tree) UnmarshalBinary(packed []byte) error {
	return msgpack.NewDecoder(io.LimitReader(flate.NewReader(bytes.NewReader(packed)), mostTree)).Decode((*plainTree)(t))
}

// MarshalJSON implements json.Marshaler.
func (t *Tree) MarshalJSON() ([]byte, error) {
	packed, err := t.MarshalBinary()
	if err != nil {
		return nil, err
	}
	return json.Marshal(packed)
}

// UnmarshalJSON implements json.Unmarshaler.
func (t *Tree) UnmarshalJSON(text []byte) error {
	var packed []byte
	if err := json.Unmarshal(text, &packed); err != nil {
		return err
	}
	return t.UnmarshalBinary(packed)
}

// Check returns what is wrong with a tree that came from elsewhere.
func (t *Tree) Check() error {
	if !filepath.IsAbs(t.Root) {
		return errors.New("check tree: its root is no absolute path")
	}
	files := make(map[string]bool, len(t.Files))
	for _, f := range t.Files {
		if !filepath.IsLocal(f.Path) || path.Clean(f.Path) != f.Path || f.Path == "." || f.Size < 0 || (len(f.Hash) != sha256.Size) == (f.Link == "") {
			return fmt.Errorf("check tree: %q is no file of it", f.Path)
		}
		if files[f.Path] {
			return fmt.Errorf("check tree: %q is there twice", f.Path)
		}
		files[f.Path] = true
	}
	for _, f := range t.Files {
		for dir := path.Dir(f.Path); dir != "."; dir = path.Dir(dir) {
			if files[dir] {
				return fmt.Errorf("check tree: %q is below a file", f.Path)
			}
		}
	}
	return nil
}

// Name identifies the tree by what it holds.
func (t *Tree) Name() string {
	h := sha256.New()
	for _, f := range t.Files {
		fmt.Fprintf(h, "%q %d %x %t %q\n", f.Path, f.Size, f.Hash, f.Exec, f.Link)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Bytes is the size of some of its files.
func (t *Tree) Bytes(files []int) (n int64) {
	for _, i := range files {
		n += t.Files[i].Size
	}
	return n
}

// At returns a program and its working directory where the tree is at another path. Relative paths hold if the working
// directory is below Root. Other words of the program that name a file of the tree, or a directory that has one, get its path
// there, and so do those of the form --NAME=PATH.
func (t *Tree) At(root string, argv []string, dir string) (newArgv []string, newDir string) {
	newDir, inside := t.moved(root, dir)
	if !inside {
		newDir = dir
	}
	there := t.names()
	newArgv = slices.Clone(argv)
	for i, arg := range argv {
		flag, name, joined := strings.Cut(arg, "=")
		if flag += "="; !joined || arg[0] != '-' {
			flag, name = "", arg
		}
		if !filepath.IsAbs(name) && !inside {
			name = filepath.Join(dir, name)
		}
		if to, is := t.moved(root, name); is && there[filepath.Clean(name)] {
			newArgv[i] = flag + to
		}
	}
	return newArgv, newDir
}

// EnvAt returns an environment in which PYTHONPATH names what it has of the tree by its path there.
func (t *Tree) EnvAt(root string, env []string) []string {
	there, newEnv := t.names(), slices.Clone(env)
	for i, kv := range env {
		if list, is := strings.CutPrefix(kv, "PYTHONPATH="); is {
			parts := filepath.SplitList(list)
			for n, part := range parts {
				if to, is := t.moved(root, part); is && there[filepath.Clean(part)] {
					parts[n] = to
				}
			}
			newEnv[i] = "PYTHONPATH=" + strings.Join(parts, string(filepath.ListSeparator))
		}
	}
	return newEnv
}

// Has reports whether a path is that of the tree, or below it.
func (t *Tree) Has(name string) bool {
	_, is := t.moved("", name)
	return is
}

// moved returns where a path below Root is if the tree is at another path.
func (t *Tree) moved(root, name string) (to string, is bool) {
	below, err := filepath.Rel(t.Root, name)
	return filepath.Join(root, below), err == nil && filepath.IsLocal(below)
}

// names returns the paths, on the launcher's machine, of the files and of their directories.
func (t *Tree) names() map[string]bool {
	all := map[string]bool{}
	for _, f := range t.Files {
		for name := filepath.Join(t.Root, f.Path); !all[name] && len(name) >= len(t.Root); name = filepath.Dir(name) {
			all[name] = true
		}
	}
	return all
}

// AskFiles asks for files of the job's Tree, or of its environment of Python, by their places in it. The answers are Files.
type AskFiles struct {
	Missing []int  `msgpack:"missing"`
	Not     string `msgpack:"not"`    // a host that did not have them; "" at first
	Python  bool   `msgpack:"python"` // of the environment
}

// Files is the next piece of the files that a daemon asked for, one after the other, or where they are.
type Files struct {
	At    string `msgpack:"at"`    // address of a host that has all files, which the daemon asks instead
	Data  []byte `msgpack:"data"`  // packed by deflate, if that is shorter than Size
	Size  int    `msgpack:"size"`  // of the piece, in bytes
	Error string `msgpack:"error"` // why there is no more
}

// MoreFiles takes a piece, and so asks for another one.
type MoreFiles struct{}

// Platform is what decides which packages suit a Python.
type Platform struct {
	Version string `msgpack:"version"` // major and minor, such as 3.11
	Machine string `msgpack:"machine"` // x86_64 or aarch64
	Libc    string `msgpack:"libc"`    // the version of glibc; "" for another library
}

// AskPython asks for the environment of Python that the job brings. The answer is Python.
type AskPython struct {
	Path     string   `msgpack:"path"` // of the Python that the host has
	Platform Platform `msgpack:"platform"`
	Whole    bool     `msgpack:"whole"` // the host does not have it yet: which files does it have?
}

// Python is the environment for the Python of a host.
type Python struct {
	Name  string `msgpack:"name"` // of its Tree
	Tree  *Tree  `msgpack:"tree"` // nil unless the host asked for it
	Error string `msgpack:"error"`
	Hint  string `msgpack:"hint"`
}

func (*AskFiles) kind() byte  { return 100 }
func (*Files) kind() byte     { return 101 }
func (*MoreFiles) kind() byte { return 102 }
func (*AskPython) kind() byte { return 103 }
func (*Python) kind() byte    { return 104 }

package main

import (
	"archive/zip"
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"gorun/contrib/must"
)

func TestBuild(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"program":                           "\x7fELF and so on",
		"python/gorun/__init__.py":          "x = 1\n",
		"python/gorun/_version.py":          "__version__ = 'of the source'\n",
		"python/gorun/py.typed":             "",
		"python/gorun/notes.txt":            "no",
		"python/gorun/__pycache__/x.pyc":    "no",
		"python/gorun/tests/test_a.py":      "no",
		"python/shim/horovod/__init__.py":   "",
		"python/shim/horovod/torch/test.py": "",
		"python/other/__init__.py":          "no",
	} {
		path := filepath.Join(dir, name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, []byte(text), 0o644))
	}
	library := filepath.Join(dir, "built.so")
	must.Do(t, os.WriteFile(library, []byte("a library"), 0o755))
	out := filepath.Join(dir, "bin", "gorun")
	p := packages{dir: filepath.Join(dir, "python"), names: []string{"gorun", "shim"}, version: "1.2.3", library: library}
	var first []byte
	for range 2 {
		must.Do(t, p.build(out, filepath.Join(dir, "program")))
		text, err := os.ReadFile(out)
		must.Do(t, err)
		if first == nil {
			first = text
		}
		if !bytes.HasPrefix(text, []byte("\x7fELF and so on")) || !bytes.Equal(first, text) {
			t.Error("the program is not at the start, or the second result differs from the first")
		}
	}
	info, err := os.Stat(out)
	if err != nil || info.Mode().Perm() != 0o755 {
		t.Fatalf("mode %v, %v", info.Mode(), err)
	}
	if built, err := stat(p, out, filepath.Join(dir, "program")); err != nil || !os.SameFile(info, built) {
		t.Errorf("a file with the same contents was replaced: %v", err)
	}
	p.version = "1.2.4"
	if built, err := stat(p, out, filepath.Join(dir, "program")); err != nil || os.SameFile(info, built) {
		t.Errorf("a file of another version was not replaced: %v", err)
	}
	p.version = "1.2.3"
	if _, err := stat(p, out, filepath.Join(dir, "program")); err != nil {
		t.Fatal(err)
	}
	archive, err := zip.OpenReader(out)
	must.Do(t, err)
	defer archive.Close()
	var names []string
	for _, f := range archive.File {
		names = append(names, f.Name)
	}
	want := []string{"gorun/__init__.py", "gorun/_version.py", "gorun/py.typed", "shim/horovod/__init__.py", "shim/horovod/torch/test.py",
		"gorun/libgorun.so"}
	if !slices.Equal(names, want) {
		t.Errorf("archive holds %q, want %q", names, want)
	}
	if text, err := fs.ReadFile(archive, "gorun/_version.py"); err != nil || string(text) != "__version__ = \"1.2.3\"\n" {
		t.Errorf("_version.py: %q, %v", text, err)
	}
	p.library = filepath.Join(dir, "none.so")
	if err := p.build(out, filepath.Join(dir, "program")); err != nil {
		t.Errorf("without a library: %v", err)
	}
	p.names = []string{"nothing"}
	if err := p.build(out, filepath.Join(dir, "program")); err == nil {
		t.Error("a package that is not there was accepted")
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "bin", ".pyzip-*")); left != nil {
		t.Errorf("left behind: %q", left)
	}
}

func TestPythonVersion(t *testing.T) {
	for in, want := range map[string]string{
		"1.2.3": "1.2.3", "1.2.3-rc.1": "1.2.3rc1", "1.2.3-alpha.2+5.g01ab": "1.2.3a2+5.g01ab", "0.0.0+971.g07c3.dirty": "0.0.0+971.g07c3.dirty",
		"": "", "v1.2.3": "", "1.2": "", "1.2.3-next": "", "1.2.3+": "", "1.2.3+a-b": "", "1.2.3\"": "",
	} {
		if got, err := pythonVersion(in); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
}

// stat builds a program, and returns what there is of it then.
func stat(p packages, out, executable string) (fs.FileInfo, error) {
	if err := p.build(out, executable); err != nil {
		return nil, err
	}
	return os.Stat(out)
}

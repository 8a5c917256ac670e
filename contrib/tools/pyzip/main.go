// Command pyzip appends Python packages to an executable, as a zip archive that Python imports from:
//
//	pyzip -o bin/gorun build/gorun contrib/python gorun shim
//
// makes bin/gorun from build/gorun, with the directories gorun and shim of contrib/python. The result is
// the same for the same input, and replaces the old one in one step.
package main

import (
	"archive/zip"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	out := flag.String("o", "", "write the result to `FILE`")
	flag.Parse()
	if *out == "" || flag.NArg() < 3 {
		fmt.Fprintln(os.Stderr, "usage: pyzip -o FILE EXECUTABLE DIRECTORY PACKAGE...")
		os.Exit(2)
	}
	if err := build(*out, flag.Arg(0), flag.Arg(1), flag.Args()[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "pyzip: error:", err)
		os.Exit(1)
	}
}

// build writes the executable and the archive to a file beside out and renames it.
func build(out, executable, dir string, packages []string) (err error) {
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(out), ".pyzip-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(f.Name())
		}
	}()
	if err := errors.Join(write(f, executable, dir, packages), f.Chmod(0o755), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), out)
}

func write(w io.Writer, executable, dir string, packages []string) error {
	program, err := os.Open(executable)
	if err != nil {
		return err
	}
	defer program.Close()
	size, err := io.Copy(w, program)
	if err != nil {
		return err
	}
	archive := zip.NewWriter(w)
	// Offsets count from the start of the file, so that unzip does not have to guess either.
	archive.SetOffset(size)
	for _, name := range packages {
		n, err := addPackage(archive, dir, name)
		if err != nil {
			return err
		}
		if n == 0 {
			return fmt.Errorf("no Python files in %s", filepath.Join(dir, name))
		}
	}
	return archive.Close()
}

// addPackage adds the modules of a directory in the order of their names, and counts them. Files are
// stored as they are: they are small, and a Python without zlib can read them.
func addPackage(archive *zip.Writer, dir, name string) (n int, err error) {
	err = filepath.WalkDir(filepath.Join(dir, name), func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == "tests" || e.Name() == "__pycache__"):
			return fs.SkipDir
		case e.IsDir() || !wanted(e.Name()):
			return nil
		}
		inside, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		header := &zip.FileHeader{Name: filepath.ToSlash(inside), Method: zip.Store, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
		header.SetMode(0o644)
		w, err := archive.CreateHeader(header)
		if err != nil {
			return err
		}
		n++
		_, err = w.Write(text)
		return err
	})
	return n, err
}

func wanted(name string) bool {
	return name == "py.typed" || strings.HasSuffix(name, ".py") && !strings.HasPrefix(name, "test_")
}

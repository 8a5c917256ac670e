// Command pyzip appends Python packages to an executable, as a zip archive that Python imports from:
//
//	pyzip -version 1.2.3 -o bin/gorun build/gorun contrib/python gorun shim
//
// makes bin/gorun from build/gorun and the directories gorun and shim of contrib/python, whose _version.py gets the
// version. With -library the archive also contains libgorun.so, with -program another program. The result is the same
// for the same input, and replaces the old one in one step.
package main

import (
	"archive/zip"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

func main() {
	out := flag.String("o", "", "write the result to `FILE`")
	version := flag.String("version", "", "`VERSION` of the packages, as SemVer")
	library := flag.String("library", "", "also put the native library of this `FILE` into the first package, if there is one")
	program := flag.String("program", "", "also put the program of this `FILE` into the archive, compressed, if there is one")
	flag.Parse()
	if *out == "" || *version == "" || flag.NArg() < 3 {
		fmt.Fprintln(os.Stderr, "usage: pyzip -version VERSION -o FILE EXECUTABLE DIRECTORY PACKAGE...")
		os.Exit(2)
	}
	p := packages{dir: flag.Arg(1), names: flag.Args()[2:], library: *library, program: *program}
	var err error
	if p.version, err = pythonVersion(*version); err == nil {
		err = p.build(*out, flag.Arg(0))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "pyzip: error:", err)
		os.Exit(1)
	}
}

// semver matches a version; Python knows no other pre-releases than these three.
var semver = regexp.MustCompile(`^(\d+\.\d+\.\d+)(?:-(alpha|beta|rc)\.(\d+))?(\+[0-9A-Za-z]+(?:\.[0-9A-Za-z]+)*)?$`)

// pythonVersion returns a version in the form of PEP 440, which differs for pre-releases: 1.2.3rc1 for 1.2.3-rc.1.
func pythonVersion(version string) (string, error) {
	m := semver.FindStringSubmatch(version)
	if m == nil {
		return "", fmt.Errorf("bad version %q: use 1.2.3 or 1.2.3-rc.1 (or alpha, beta), +BUILD may follow", version)
	}
	short := map[string]string{"alpha": "a", "beta": "b", "rc": "rc"}[m[2]]
	return m[1] + short + m[3] + m[4], nil
}

// packages are Python packages in a directory, and the version that they get.
type packages struct {
	dir     string
	names   []string
	version string
	library string // file that may be missing
	program string // file that may be missing
}

// build writes the executable and the archive to a file beside out and renames it. It does not touch a file that has
// the same contents: go test caches results by the times of the files that tests use.
func (p packages) build(out, executable string) error {
	made, err := p.make(executable)
	if err != nil {
		return err
	}
	if old, err := os.ReadFile(out); err == nil && bytes.Equal(old, made) {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(out), 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(out), ".pyzip-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // where it is not renamed
	_, err = f.Write(made)
	if err := errors.Join(err, f.Chmod(0o755), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), out)
}

// make returns the executable with the archive behind it.
func (p packages) make(executable string) ([]byte, error) {
	program, err := os.ReadFile(executable)
	if err != nil {
		return nil, err
	}
	made := bytes.NewBuffer(program)
	archive := zip.NewWriter(made)
	// Offsets count from the start of the file, so that unzip does not have to guess either.
	archive.SetOffset(int64(len(program)))
	for _, name := range p.names {
		n, err := p.add(archive, name)
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return nil, fmt.Errorf("no Python files in %s", filepath.Join(p.dir, name))
		}
	}
	// What Python does not read is compressed.
	err = errors.Join(putBuilt(archive, p.names[0]+"/libgorun.so", p.library, zip.Store),
		putBuilt(archive, filepath.Base(p.program), p.program, zip.Deflate), archive.Close())
	return made.Bytes(), err
}

// putBuilt puts a file into the archive under a name, if it was built.
func putBuilt(archive *zip.Writer, name, file string, method uint16) error {
	text, err := os.ReadFile(file)
	if file == "" || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return put(archive, name, text, method)
}

// put puts a file into the archive. Those for Python are stored as they are: they are small, and a Python without zlib can read them.
func put(archive *zip.Writer, name string, text []byte, method uint16) error {
	header := &zip.FileHeader{Name: name, Method: method, Modified: time.Date(1980, 1, 1, 0, 0, 0, 0, time.UTC)}
	header.SetMode(0o644)
	w, err := archive.CreateHeader(header)
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// add adds the modules of a directory in the order of their names, and counts them.
func (p packages) add(archive *zip.Writer, name string) (n int, err error) {
	err = filepath.WalkDir(filepath.Join(p.dir, name), func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == "tests" || e.Name() == "__pycache__"):
			return fs.SkipDir
		case e.IsDir() || !wanted(e.Name()):
			return nil
		}
		inside, err := filepath.Rel(p.dir, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if e.Name() == "_version.py" {
			text = fmt.Appendf(nil, "__version__ = \"%s\"\n", p.version)
		}
		n++
		return put(archive, filepath.ToSlash(inside), text, zip.Store)
	})
	return n, err
}

func wanted(name string) bool {
	return name == "py.typed" || strings.HasSuffix(name, ".py") && !strings.HasPrefix(name, "test_")
}

//go:build unix

package proc

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// defaultPath serves a rank whose environment has no PATH.
const defaultPath = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"

// Exit codes of a program that could not start, as shells have them.
const (
	exitNotStarted    = 1
	exitNotExecutable = 126
	exitNotFound      = 127
)

// startError is the reason why a rank could not start, and its exit code.
type startError struct {
	code int
	text string
	err  error
}

func (e *startError) Error() string { return e.text }
func (e *startError) Unwrap() error { return e.err }

// checkDir refuses a working directory in which no process could start.
func checkDir(dir string) error {
	if dir == "" {
		return nil
	}
	if !filepath.IsAbs(dir) {
		return &startError{exitNotStarted, fmt.Sprintf("working directory %s: not an absolute path", dir), unix.EINVAL}
	}
	fi, err := os.Stat(dir)
	if err == nil && !fi.IsDir() {
		err = unix.ENOTDIR
	}
	if err == nil {
		err = unix.Access(dir, unix.X_OK)
	}
	if err != nil {
		return &startError{exitNotStarted, fmt.Sprintf("working directory %s: %v", dir, cause(err)), err}
	}
	return nil
}

// Find returns the file of a program, as a rank would start it.
func Find(name string, env []string, dir string) (string, error) { return lookPath(name, env, dir) }

// lookPath finds a program as execvp would inside the rank: by its PATH, from its directory.
func lookPath(name string, env []string, dir string) (string, error) {
	if name == "" {
		return "", &startError{exitNotFound, "no program to run", unix.ENOENT}
	}
	if strings.ContainsRune(name, '/') {
		file := within(dir, name)
		err := executable(file)
		if target := linkTarget(file); errors.Is(err, unix.ENOENT) && target != file {
			return "", &startError{exitNotFound, fmt.Sprintf("%s: a link to %s, which is not there", name, target), err}
		}
		if err != nil {
			return "", notStartable(name, err)
		}
		return file, nil
	}
	path, ok := variable(env, "PATH")
	if !ok {
		path = defaultPath
	}
	var denied error
	lost := "" // what is missing here and would have been found first
	for _, d := range filepath.SplitList(path) {
		file := filepath.Join(within(dir, d), name) // Join drops "./", which exec does not need
		err := executable(file)
		switch {
		case err == nil && lost != "":
			return "", &startError{exitNotFound, fmt.Sprintf("%s: %s is active where gorun runs, and not there on this host: %s would take its place",
				name, lost, file), unix.ENOENT}
		case err == nil:
			return file, nil
		case lost == "" && strings.HasPrefix(name, "python"):
			lost = lostEnvironment(file, env)
		}
		if denied == nil && errors.Is(err, unix.EACCES) && exists(file) {
			denied = notStartable(file, err)
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", &startError{exitNotFound, fmt.Sprintf("%s: not found in PATH (%s)", name, path), unix.ENOENT}
}

// lostEnvironment returns the virtual environment in whose place another Python would run on this host: it is active,
// and it is missing here, or it has a link to a Python that is missing. It is "" for a file that is in none.
func lostEnvironment(file string, env []string) string {
	root := filepath.Dir(filepath.Dir(file))
	active := slices.ContainsFunc([]string{"VIRTUAL_ENV", "CONDA_PREFIX"}, func(name string) bool {
		value, _ := variable(env, name)
		return value != "" && filepath.Join(value, "bin") == filepath.Dir(file)
	})
	if _, err := os.Stat(root); !active || err == nil && linkTarget(file) == file {
		return ""
	}
	return root
}

// within resolves a path as a process in dir would. An empty element of PATH is that directory itself.
func within(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}

var errIrregular = errors.New("a program must be a regular file")

func executable(file string) error {
	fi, err := os.Stat(file)
	if err != nil {
		return err
	}
	switch {
	case fi.IsDir():
		return unix.EISDIR
	case !fi.Mode().IsRegular(): // who opens a FIFO waits for its writer
		return errIrregular
	}
	return unix.Access(file, unix.X_OK) // knows about noexec mounts and capabilities, mode bits do not
}

// linkTarget returns the end of a chain of symbolic links. The program of a virtual environment is such a link to the
// Python of another directory, which hosts may lack.
func linkTarget(file string) string {
	const maxLinks = 40 // as in Linux
	for range maxLinks {
		target, err := os.Readlink(file)
		if err != nil {
			break
		}
		file = within(filepath.Dir(file), target)
	}
	return file
}

func exists(file string) bool {
	fi, err := os.Stat(file)
	return err == nil && !fi.IsDir()
}

// notStartable turns an error of looking up or executing a file into an exit code and a message.
func notStartable(file string, err error) error {
	e := &startError{exitNotStarted, fmt.Sprintf("%s: %v", file, cause(err)), err}
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		e.code = exitNotFound
		if in := interpreter(file); len(in) > 0 {
			e.text = fmt.Sprintf("%s: its interpreter %s is missing", file, in[0])
			if strings.HasSuffix(in[0], "\r") {
				e.text = file + windowsLine
			}
		}
	case errors.Is(err, unix.ENOEXEC):
		e.code = exitNotExecutable
		e.text = file + ": not a program of this machine, nor a script that names its interpreter (#!)"
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EISDIR), errors.Is(err, unix.E2BIG),
		errors.Is(err, unix.ETXTBSY), errors.Is(err, errIrregular):
		e.code = exitNotExecutable
	}
	return e
}

const windowsLine = ": its first line ends in a carriage return, as lines of Windows do"

// checkBeginning reads what exec will read of a file and of its interpreter, so that exec need not wait for their file
// servers. It rejects a script whose first line makes env look for a name that ends in a carriage return, unless it exists.
func checkBeginning(file string, env []string, dir string) error {
	in := interpreter(file)
	if len(in) > 0 && executable(within(dir, in[0])) == nil {
		interpreter(within(dir, in[0]))
	}
	if len(in) == 2 && filepath.Base(in[0]) == "env" && strings.HasSuffix(in[1], "\r") {
		if _, err := lookPath(in[1], env, dir); err != nil {
			return &startError{exitNotFound, file + windowsLine, unix.ENOENT}
		}
	}
	return nil
}

// interpreter returns the interpreter that a script's first line names, as exec blames the script for it, and its
// argument.
func interpreter(file string) []string {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	line, _ := bufio.NewReaderSize(f, 256).ReadSlice('\n')
	rest, ok := bytes.CutPrefix(line, []byte("#!"))
	blank := func(r rune) bool { return strings.ContainsRune(" \t\n", r) } // for the kernel a carriage return is not blank
	if !ok {
		return nil
	}
	return strings.FieldsFunc(string(rest), blank)
}

// cause strips the layers that would repeat the file's name.
func cause(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}

// Package python finds out which Python a program runs on, and which frameworks it has there, without starting it: by
// names of files, as Python itself goes by them.
package python

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gorun/rendezvous/wire"
	"gorun/worker/rankenv"
)

var (
	numbered = regexp.MustCompile(`^python(3\.\d+)`)
	// metadata is the directory that pip leaves beside a framework, or the file that distributions leave.
	metadata = regexp.MustCompile(`^(torch|tensorflow|jax)-(\d+\.\d+).*\.(dist|egg)-info$`)
)

// Describe returns the Python that a file is, with major and minor versions. It is empty for another program, and for
// one that only starts Python.
func Describe(file string, env []string) (p wire.Python) {
	if !strings.HasPrefix(filepath.Base(file), "python") {
		return p
	}
	prefix, real := filepath.Dir(filepath.Dir(file)), file
	if target, err := filepath.EvalSymlinks(file); err == nil {
		real = target
	}
	named := numbered.FindStringSubmatch(filepath.Base(real))
	if libraries, _ := filepath.Glob(prefix + "/lib/python3.*"); named == nil && len(libraries) == 1 { // a copy of python3
		named = numbered.FindStringSubmatch(filepath.Base(libraries[0]))
	}
	if named == nil {
		return p
	}
	p.Path, p.Versions = file, map[string]string{"Python": named[1]}
	path, _ := rankenv.Lookup(env, "PYTHONPATH")
	for _, dir := range slices.Concat(filepath.SplitList(path), sitesOf(prefix, filepath.Dir(filepath.Dir(real)), named[1], env)) {
		entries, _ := os.ReadDir(dir) // most are not there
		for _, entry := range entries {
			if m := metadata.FindStringSubmatch(entry.Name()); m != nil && p.Versions[m[1]] == "" {
				p.Versions[m[1]] = m[2]
			}
		}
	}
	return p
}

// sitesOf returns where a Python looks for packages, the first place first. base is the Python that a virtual environment
// was made from.
func sitesOf(prefix, base, version string, env []string) []string {
	own := "/lib/python" + version
	sites := []string{prefix + own + "/site-packages"}
	if settings, err := os.ReadFile(prefix + "/pyvenv.cfg"); err == nil && !strings.Contains(string(settings), "include-system-site-packages = true") {
		return sites
	}
	home, _ := rankenv.Lookup(env, "HOME")
	return append(sites, home+"/.local"+own+"/site-packages", "/usr/local"+own+"/dist-packages", base+own+"/site-packages",
		base+"/lib64/python"+version+"/site-packages", base+"/lib/python3/dist-packages")
}

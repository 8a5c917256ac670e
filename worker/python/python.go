// Package python finds out which Python a program runs on, and which frameworks it has there, without starting it: by
// names of files, as Python itself goes by them.
package python

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gorun/worker/rankenv"
)

var (
	numbered = regexp.MustCompile(`^python3\.\d+`)
	// metadata is the directory that pip leaves beside a framework, or the file that distributions leave.
	metadata = regexp.MustCompile(`^(torch|tensorflow|jax)-(\d+\.\d+).*\.(dist|egg)-info$`)
)

// Describe returns major and minor versions of the Python that a file is and of its frameworks, and its path, as
// wire.Ready has them; nil for another program, and for one that only starts Python.
func Describe(file string, env []string) map[string]string {
	real, _ := filepath.EvalSymlinks(file)
	prefix, base := filepath.Dir(filepath.Dir(file)), filepath.Dir(filepath.Dir(real)) // they differ in a virtual environment
	name := numbered.FindString(filepath.Base(real))
	if libraries, _ := filepath.Glob(prefix + "/lib/python3.*"); name == "" && len(libraries) == 1 { // a copy of python3
		name = filepath.Base(libraries[0])
	}
	if name == "" || !strings.HasPrefix(filepath.Base(file), "python") {
		return nil
	}
	// Where this Python looks for packages, the first place first.
	path, _ := rankenv.Lookup(env, "PYTHONPATH")
	home, _ := rankenv.Lookup(env, "HOME")
	sites := append(filepath.SplitList(path), prefix+"/lib/"+name+"/site-packages")
	if settings, err := os.ReadFile(prefix + "/pyvenv.cfg"); err != nil || strings.Contains(string(settings), "include-system-site-packages = true") {
		sites = slices.Concat(sites, []string{home + "/.local/lib/" + name + "/site-packages", "/usr/local/lib/" + name + "/dist-packages",
			base + "/lib/" + name + "/site-packages", base + "/lib64/" + name + "/site-packages", base + "/lib/python3/dist-packages"})
	}
	versions := map[string]string{"path": file, "Python": strings.TrimPrefix(name, "python")}
	for _, dir := range sites {
		entries, _ := os.ReadDir(dir) // most are not there
		for _, entry := range entries {
			if m := metadata.FindStringSubmatch(entry.Name()); m != nil && versions[m[1]] == "" {
				versions[m[1]] = m[2]
			}
		}
	}
	return versions
}

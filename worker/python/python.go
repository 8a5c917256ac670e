// Package python finds out which Python a program runs on, and which frameworks it has there, without starting it: by
// names of files, as Python itself goes by them.
package python

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
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
	user, _ := rankenv.Lookup(env, "PYTHONUSERBASE")
	alone, _ := rankenv.Lookup(env, "PYTHONNOUSERSITE")
	sites, packages := filepath.SplitList(path), name+"/site-packages"
	settings, err := os.ReadFile(prefix + "/pyvenv.cfg")
	if err == nil {
		sites = append(sites, prefix+"/lib/"+packages)
	}
	if err != nil || strings.Contains(string(settings), "include-system-site-packages = true") {
		if alone == "" {
			sites = append(sites, cmp.Or(user, home+"/.local")+"/lib/"+packages)
		}
		// A distribution's Python looks below local first: Fedora's in its own directories, Debian's in another one.
		for _, lib := range []string{"/local/lib64/" + packages, "/local/lib/" + packages, "/local/lib/" + name + "/dist-packages",
			"/lib64/" + packages, "/lib/" + packages, "/lib/python3/dist-packages"} {
			sites = append(sites, base+lib)
		}
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

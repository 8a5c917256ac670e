//go:build linux

package e2etest

import (
	"archive/zip"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"gorun/contrib/must"
)

// Wheels makes a directory of wheels that all hosts see, with numpy as it is on this machine, and returns it with numpy's wheel. In
// the PATH of every gorun there is, from then on, the uv that gorun would get where there is none.
func (c *Cluster) Wheels() (dir, numpy string) {
	c.T.Helper()
	lock := filepath.Join(c.Root, "launcher/pyenv/uv.txt")
	text, err := os.ReadFile(lock)
	must.Do(c.T, err)
	version, _, _ := strings.Cut(string(text), " ")
	at := filepath.Join(c.Root, "build", version)
	if _, err := os.Stat(at); err != nil {
		partial := c.Shared("uv")
		out, err := exec.CommandContext(c.T.Context(), Python, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--target", partial, "-r", lock).CombinedOutput()
		if err != nil {
			c.T.Fatalf("get uv: %v: %s", err, out)
		}
		os.Rename(partial, at) // unless another test has done it
	}
	out, err := exec.CommandContext(c.T.Context(), Python, "-c", "import numpy; print(numpy.__version__, *numpy.__path__)").Output()
	must.Do(c.T, err)
	words := strings.Fields(string(out))
	dir = c.Shared("wheels")
	files := map[string]string{}
	must.Do(c.T, filepath.WalkDir(words[1], func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() && (e.Name() == "tests" || e.Name() == "__pycache__") && name != words[1] {
			return fs.SkipDir
		}
		if e.Type().IsRegular() {
			text, err := os.ReadFile(name)
			below, _ := filepath.Rel(filepath.Dir(words[1]), name)
			files[below] = string(text)
			return err
		}
		return nil
	}))
	c.Env = append(c.Env, "PATH="+at+"/bin:/usr/bin:/bin", "UV_NO_CACHE=1")
	return dir, c.Wheel(dir, "numpy", words[0], "py3-none-any", files)
}

// Wheel makes a wheel of files in a directory, with a program NAME-run that calls the package's main. It returns its path.
func (c *Cluster) Wheel(dir, name, version, tag string, files map[string]string) string {
	c.T.Helper()
	info := name + "-" + version + ".dist-info/"
	file, err := os.Create(filepath.Join(dir, fmt.Sprintf("%s-%s-%s.whl", name, version, tag)))
	must.Do(c.T, err)
	w := zip.NewWriter(file)
	record := ""
	put := func(name, text string) {
		record += name + ",,\n"
		to, err := w.Create(name)
		must.Do(c.T, err)
		to.Write([]byte(text))
	}
	for name, text := range files {
		put(name, text)
	}
	put(info+"METADATA", "Metadata-Version: 2.1\nName: "+name+"\nVersion: "+version+"\n")
	put(info+"WHEEL", "Wheel-Version: 1.0\nGenerator: gorun\nRoot-Is-Purelib: true\nTag: "+tag+"\n")
	put(info+"entry_points.txt", "[console_scripts]\n"+name+"-run = "+name+":main\n")
	put(info+"RECORD", record)
	must.Do(c.T, w.Close())
	must.Do(c.T, file.Close())
	return file.Name()
}

package python_test

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"gorun/contrib/must"
	"gorun/worker/python"
)

// TestDescribe: the versions that a Python and its frameworks have by the names of their files, as Python finds them.
func TestDescribe(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{
		"base/bin", "base/lib/python3.11/site-packages/torch-2.1.0+cpu.dist-info", "base/lib/python3/dist-packages/jax-0.4.1.egg-info",
		"base/lib/python3.11/site-packages/torch_geometric-2.5.0.dist-info", "base/lib/python3.9",
		"venv/bin", "venv/lib/python3.11/site-packages/torch-2.3.1.dist-info", "mine/tensorflow-2.15.1.dist-info",
		"home/.local/lib/python3.11/site-packages/jax-0.5.3.dist-info", "copy/bin", "copy/lib/python3.12/site-packages",
		"other/.local/lib/python3.11/site-packages/torch-2.4.0.dist-info", "user/lib/python3.11/site-packages/torch-2.5.0.dist-info",
		"both/bin", "both/lib/python3.11/site-packages/torch-2.3.1.dist-info",
		"fedora/bin", "fedora/lib64/python3.11/site-packages/torch-2.2.0.dist-info", "fedora/local/lib64/python3.11/site-packages/torch-2.6.0.dist-info",
	} {
		must.Do(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	write := func(name, text string) {
		t.Helper()
		must.Do(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o755))
	}
	link := func(name, target string) {
		t.Helper()
		must.Do(t, os.Symlink(target, filepath.Join(root, name)))
	}
	write("base/bin/python3.11", "")
	link("base/bin/python3", "python3.11")
	link("venv/bin/python3", "../../base/bin/python3")
	write("copy/bin/python", "")
	write("base/bin/train", "")
	write("venv/pyvenv.cfg", "home = /x\ninclude-system-site-packages = false\n")
	write("fedora/bin/python3.11", "")
	link("both/bin/python3", "../../base/bin/python3")
	write("both/pyvenv.cfg", "home = /x\ninclude-system-site-packages = true\n")
	for _, tc := range []struct {
		file string
		env  []string
		want map[string]string
	}{
		{"base/bin/python3", []string{"HOME=/none"}, map[string]string{"Python": "3.11", "torch": "2.1", "jax": "0.4"}},
		{"base/bin/python3", []string{"HOME=" + root + "/home"}, map[string]string{"Python": "3.11", "torch": "2.1", "jax": "0.5"}},
		{"base/bin/python3", []string{"HOME=" + root + "/other"}, map[string]string{"Python": "3.11", "torch": "2.4", "jax": "0.4"}},
		{"base/bin/python3", []string{"HOME=" + root + "/other", "PYTHONNOUSERSITE=1"}, map[string]string{"Python": "3.11", "torch": "2.1", "jax": "0.4"}},
		{"base/bin/python3", []string{"HOME=" + root + "/other", "PYTHONUSERBASE=" + root + "/user"}, map[string]string{"Python": "3.11", "torch": "2.5", "jax": "0.4"}},
		{"fedora/bin/python3.11", []string{"HOME=/none"}, map[string]string{"Python": "3.11", "torch": "2.6"}},
		{"both/bin/python3", []string{"HOME=" + root + "/other"}, map[string]string{"Python": "3.11", "torch": "2.3", "jax": "0.4"}},
		{"venv/bin/python3", []string{"HOME=" + root + "/home"}, map[string]string{"Python": "3.11", "torch": "2.3"}},
		{"venv/bin/python3", []string{"PYTHONPATH=/none:" + root + "/mine"}, map[string]string{"Python": "3.11", "torch": "2.3", "tensorflow": "2.15"}},
		{"copy/bin/python", nil, map[string]string{"Python": "3.12"}},
		{"base/bin/train", nil, nil},
		{"none/bin/python3", nil, nil},
	} {
		got := python.Describe(filepath.Join(root, tc.file), tc.env)
		if tc.want != nil {
			tc.want["path"] = filepath.Join(root, tc.file)
		}
		if !maps.Equal(got, tc.want) {
			t.Errorf("%s, %q: %v, want %v", tc.file, tc.env, got, tc.want)
		}
	}
}

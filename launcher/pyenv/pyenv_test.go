package pyenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gorun/contrib/must"
	"gorun/rendezvous/wire"
)

func host(name, version, machine, libc string) asked {
	return asked{name, &wire.AskPython{Path: "/bin/python3", Platform: wire.Platform{Version: version, Machine: machine, Libc: libc}}}
}

// TestChoose: hosts get one environment, for the oldest glibc; what differs is named with both hosts.
func TestChoose(t *testing.T) {
	a := host("a", "3.11", "x86_64", "2.36")
	for _, tc := range []struct {
		other asked
		want  string // the target, or the error
	}{
		{host("b", "3.11", "x86_64", "2.39"), "x86_64-manylinux_2_28"}, {host("b", "3.11", "x86_64", "2.17"), "x86_64-manylinux_2_17"},
		{host("b", "3.9", "x86_64", "2.36"), "a has Python 3.11 on x86_64 with glibc 2.36 (/bin/python3), and b has Python 3.9 "},
		{host("b", "3.11", "aarch64", "2.36"), "and b has Python 3.11 on aarch64 "}, {host("b", "3.11", "x86_64", ""), " with musl "},
		{host("b", "3.11", "x86_64", "2.5"), "glibc 2.17 or newer"},
	} {
		p, err := choose([]asked{a, tc.other})
		got, _ := target(p)
		if err != nil {
			got = err.Error()
			if e, is := errors.AsType[*Error](err); !is || e.NextStep() == "" {
				t.Errorf("%v: no hint", err)
			}
		}
		if !strings.Contains(got, tc.want) {
			t.Errorf("%+v: %s, want %s", tc.other.Platform, got, tc.want)
		}
	}
	for _, p := range []wire.Platform{{Version: "3.13t", Machine: "x86_64", Libc: "2.36"}, {Version: "3.11", Machine: "ppc64le", Libc: "2.36"}, {}} {
		if got, err := target(p); err == nil {
			t.Errorf("%+v: %s", p, got)
		}
	}
	if got, err := target(wire.Platform{Version: "3.12", Machine: "aarch64"}); err != nil || got != "aarch64-unknown-linux-musl" {
		t.Errorf("%s, %v", got, err)
	}
}

func write(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(dir, name)
		must.Do(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must.Do(t, os.WriteFile(path, []byte(text), 0o644))
	}
}

func none(string) string { return "" }

// TestOpen: files of requirements with what they include, projects, and what is neither.
func TestOpen(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"r.txt": "-r more/r.txt # all\n--constraint=c.txt\na\n", "more/r.txt": "b\n-r ../r.txt\n", "c.txt": "b<2\n",
		"hashed.txt": "a==1 \\\n  --hash=sha256:00\n", "lost.txt": "-r none.txt\n", "proj/pyproject.toml": "[project]\n", "proj/uv.lock": "version = 1\n",
		"bare/pyproject.toml": ""})
	must.Do(t, os.WriteFile(filepath.Join(dir, "python3"), nil, 0o755))
	for _, tc := range []struct {
		word string
		kind kind
		want string // the text, or the error
	}{
		{"r.txt", requirements, "# DIR/r.txt\n-r more/r.txt # all\n--constraint=c.txt\na\n\n# DIR/more/r.txt\nb\n-r ../r.txt\n\n# DIR/c.txt\nb<2\n\n"},
		{"hashed.txt", locked, "# DIR/hashed.txt\na==1 \\\n  --hash=sha256:00\n\n"},
		{"proj", project, "[project]\nversion = 1\n"}, {"proj/uv.lock", project, "[project]\nversion = 1\n"}, {"proj/pyproject.toml", project, "[project]\nversion = 1\n"},
		{"bare", 0, "uv.lock: no such file"}, {"lost.txt", 0, "none.txt: no such file"}, {"none", 0, "none: no such file"}, {"python3", 0, "python3 names no packages"},
	} {
		s, _, err := Open(t.Context(), filepath.Join(dir, tc.word), none, false)
		if err != nil {
			if !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v, want %s", tc.word, err, tc.want)
			}
		} else if s.kind != tc.kind || strings.ReplaceAll(s.text, dir, "DIR") != tc.want || !strings.Contains(s.Has, dir) {
			t.Errorf("%s: %+v", tc.word, s)
		}
	}
}

// TestActive: an environment that is active gives the versions that it has; what no index has is named, or is part of the program.
func TestActive(t *testing.T) {
	venv := t.TempDir()
	out, err := exec.CommandContext(t.Context(), "python3", "-m", "venv", "--without-pip", "--symlinks", venv).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	site, _ := filepath.Glob(filepath.Join(venv, "lib", "python3*", "site-packages"))
	add := func(name, direct string) {
		dir := name + "-1.0.dist-info/"
		write(t, site[0], map[string]string{dir + "METADATA": "Metadata-Version: 2.1\nName: " + name + "\nVersion: 1.0\n"})
		if direct != "" {
			write(t, site[0], map[string]string{dir + "direct_url.json": direct})
		}
	}
	add("plain", "")
	add("gorun", `{"url": "file://`+venv+`"}`)
	add("conda", `{"url": "file:///home/conda/feedstock_root/work"}`)
	add("wheel", `{"url": "https://user:secret@host/wheel-1.0-py3-none-any.whl", "archive_info": {}}`)
	add("mine", `{"url": "file://`+venv+`/src", "dir_info": {"editable": true}}`)
	open := func(sent bool) (*Source, []string, error) {
		env := map[string]string{"VIRTUAL_ENV": venv, "CONDA_PREFIX": "/none"}
		return Open(t.Context(), "auto", func(name string) string { return env[name] }, sent)
	}
	s, notes, err := open(true)
	must.Do(t, err)
	if s.text != "conda==1.0\nplain==1.0\nwheel @ https://user:secret@host/wheel-1.0-py3-none-any.whl\n" || !strings.Contains(s.Has, "packages: 3") {
		t.Errorf("%q, %s", s.text, s.Has)
	}
	if len(notes) != 1 || !strings.Contains(notes[0], "mine is installed from "+venv+"/src") {
		t.Errorf("notes %q", notes)
	}
	add("vcs", `{"url": "https://user:secret@host/vcs.git", "vcs_info": {"vcs": "git"}}`)
	add("local", `{"url": "file://`+venv+`"}`)
	_, _, err = open(false)
	if want := "has what no index has: local from file://" + venv + ", mine from " + venv + "/src, vcs from https://host/vcs.git"; err == nil || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
	gone := func(string) string { return venv + "/gone" }
	_, _, err = Open(t.Context(), "auto", gone, false)
	if e, is := errors.AsType[*Error](err); !is || strings.Contains(err.Error(), "JSON") || !strings.HasPrefix(e.NextStep(), "the active environment is gone") {
		t.Errorf("an environment that is gone: %v", err)
	}
	if _, _, err := Open(t.Context(), "auto", none, false); err == nil || !strings.Contains(err.Error(), "no environment of Python is active") {
		t.Errorf("without an environment: %v", err)
	}
}

// TestMaker: hosts wait for each other before anything is made; what was made serves again; a host that comes later has to suit.
func TestMaker(t *testing.T) {
	dir := t.TempDir()
	begin := func(hosts int) (m *Maker, ended chan error) {
		m, ended = New(&Source{Word: "r.txt", text: "a"}, dir, hosts, []string{"UV_X=y", "A=b", "PIP_CONFIG_FILE=/dev/null"}, t.Logf), make(chan error, 1)
		go func() { ended <- m.Run(t.Context()) }()
		return m, ended
	}
	differ, ended := begin(2)
	answers := make(chan error, 2)
	for _, a := range []asked{host("a", "3.11", "x86_64", "2.36"), host("b", "3.9", "x86_64", "2.36")} {
		go func() { _, err := differ.Of(t.Context(), a.host, a.AskPython, func() {}); answers <- err }()
	}
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "has Python 3.") {
		t.Errorf("two Pythons: %v", err)
	}
	for range 2 {
		if <-answers == nil {
			t.Error("two Pythons: an environment")
		}
	}

	m, ended := begin(1)
	// As if it had been made before.
	m.needs = host("", "3.11", "x86_64", "2.36").Platform
	platform, _ := target(m.needs)
	at := filepath.Join(dir, hashOf("a", fmt.Sprint(requirements, wire.Proto), platform, "3.11", "UV_X=y", "UV_NO_PROGRESS=1"))
	write(t, at, map[string]string{"env/lib/python3.11/site-packages/p.py": "P", "env/bin/run": "", "env/bin/python3": "", "env/bin/activate.fish": "", "env/bin/python-config": "", "env/pyvenv.cfg": "", "env/lib/__pycache__/p.pyc": ""})
	must.Do(t, save(t.Context(), at))
	a := host("a", "3.11", "x86_64", "2.36")
	files, err := m.Of(t.Context(), "a", a.AskPython, func() {})
	must.Do(t, err)
	must.Do(t, <-ended)
	tree := files.Tree()
	if len(tree.Files) != 3 || tree.Files[0].Path != "bin/python-config" || tree.Files[1].Path != "bin/run" || files.Name() != tree.Name() || tree.Root != filepath.Join(at, "env") || tree.Check() != nil {
		t.Errorf("%+v", tree)
	}
	for _, late := range []asked{host("b", "3.12", "x86_64", "2.36"), host("c", "3.11", "x86_64", "2.17")} {
		if _, err := m.Of(t.Context(), late.host, late.AskPython, func() {}); err == nil || !strings.Contains(err.Error(), late.host+" has ") {
			t.Errorf("%+v: %v", late.Platform, err)
		}
	}
	if _, err := m.Of(t.Context(), "d", host("d", "3.11", "x86_64", "2.40").AskPython, func() {}); err != nil {
		t.Error(err)
	}
	given := Made(tree, m.needs)
	if given.Known().Name() != tree.Name() || New(nil, "", 1, nil, nil).Known() != nil {
		t.Error("an environment is known before, or not after, it is made")
	}
	for _, tt := range []struct {
		m    *Maker
		hint string
	}{{given, "have --cluster name a host with the oldest glibc"}, {Made(nil, m.needs), "start the job again to have it on more hosts"}} {
		_, err := tt.m.Of(t.Context(), "e", host("e", "3.11", "x86_64", "2.17").AskPython, func() {})
		if advice, is := errors.AsType[*Error](err); !is || advice.NextStep() != tt.hint {
			t.Errorf("%v, want the hint %s", err, tt.hint)
		}
	}
}

// TestRun: what a program says becomes one line, without secrets and advice for its own users.
func TestRun(t *testing.T) {
	say := "printf 'error: Failed\\n  cause: no http://me:pw@host/x\\n  cause: refused\\n\\nhint: buy more\\n' >&2; exit 1"
	if err := run(t.Context(), "", nil, "sh", "-c", say); err == nil || err.Error() != "Failed: no http://host/x: refused" {
		t.Errorf("%v", err)
	}
	for text, want := range map[string]string{"`https://me:p/w@x@host/y` and a@b": "`https://host/y` and a@b", "'http://me@one' 'http://two'": "'http://one' 'http://two'"} {
		if err := run(t.Context(), "", []string{"TEXT=" + text}, "sh", "-c", `echo "$TEXT" >&2; exit 1`); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
	must.Report(t, run(t.Context(), "", nil, "sh", "-c", "echo a warning >&2"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := run(ctx, "", nil, "sleep", "100"); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
	for said, want := range map[string]string{"Hash mismatch for a wheel": "lock the packages", "a has no usable wheels": "wheels only", "a has no wheels with a matching platform tag": "wheels only",
		"/opt/wheels/r.txt: a was not found": "come from PyPI", "unpack a.whl: No space left": "make room"} {
		if got := hintFor(said); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", said, got, want)
		}
	}
}

// TestEnvironment: uv looks where pip does, by pip's files and variables though there is no pip, unless it has settings of its own.
func TestEnvironment(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"named.conf":           "[global]\nindex-url = https://me:pw@one/simple\nextra_index_url :\n    https://two/\n    # not this\n    https://three/\nfind-links = " + dir + " /none ~/venv\nno-index = no\n[install]\ntrusted-host = two\n",
		".config/pip/pip.conf": "[global]\nindex-url = https://user/\n[list]\nindex-url = https://list/\n", "venv/pip.conf": "[install]\nno-index = true\n", "venv/bad/pip.conf/x": "",
	})
	home, venv, named := "HOME="+dir, "VIRTUAL_ENV="+dir+"/none", "PIP_CONFIG_FILE="+dir+"/named.conf"
	for _, tc := range []struct {
		environ    []string
		want, flag string
	}{
		{[]string{home, venv, named}, "UV_DEFAULT_INDEX=https://me:pw@one/simple UV_INDEX=https://two/ https://three/ UV_FIND_LINKS=" + dir + "," + dir + "/venv UV_INSECURE_HOST=two", ""},
		{[]string{home, venv}, "UV_DEFAULT_INDEX=https://user/", ""},
		{[]string{home, venv, "PIP_INDEX_URL=https://env/", "PIP_NO_INDEX=1"}, "UV_DEFAULT_INDEX=https://env/", "--no-index"},
		{[]string{home, "VIRTUAL_ENV=" + dir + "/venv"}, "UV_DEFAULT_INDEX=https://user/", "--no-index"},
		{[]string{home, venv, named, "UV_INDEX_URL=https://own/"}, "UV_INDEX_URL=https://own/", ""},
		{[]string{home, venv, "PIP_CONFIG_FILE=/dev/null"}, "", ""},
	} {
		env, flags, err := environment(append(tc.environ, "XDG_CONFIG_DIRS="+dir+"/none"))
		must.Do(t, err)
		env = slices.DeleteFunc(env, func(kv string) bool { return !strings.HasPrefix(kv, "UV_") || kv == "UV_NO_PROGRESS=1" })
		if got := strings.Join(env, " "); got != tc.want || strings.Join(flags, " ") != tc.flag {
			t.Errorf("%q: %s and %q, want %s and %s", tc.environ, got, flags, tc.want, tc.flag)
		}
	}
	if _, _, err := environment([]string{"VIRTUAL_ENV=" + dir + "/venv/bad"}); err == nil || !strings.Contains(err.Error(), "read pip's settings: ") {
		t.Errorf("settings that cannot be read: %v", err)
	}
}

// TestKey: a wheel that is built again with the same version makes another environment, wherever the file has it from.
func TestKey(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for _, line := range []string{"--find-links dist\na", "--find-links=" + dir + "/dist\na", "-f ./dist\na", "./dist/a-1-py3-none-any.whl", "a @ file://" + dir + "/dist/a-1-py3-none-any.whl"} {
		write(t, dir, map[string]string{"sub/r.txt": line, "dist/a-1-py3-none-any.whl": "one"})
		s, _, err := Open(t.Context(), "sub/r.txt", none, false)
		must.Do(t, err)
		if now, err := s.read(); err != nil || now != s.text {
			t.Errorf("%s: %q, then %q: %v", line, s.text, now, err)
		}
		write(t, dir, map[string]string{"dist/a-1-py3-none-any.whl": "another"})
		if now, _ := s.read(); now == s.text {
			t.Errorf("%s: the same as before: %q", line, now)
		}
	}
}

// fakeUV puts a uv into PATH that locks and installs one file, and edits the file of EDIT as it begins. It notes in a file what it does.
func fakeUV(t *testing.T) (notes string) {
	t.Helper()
	bin := t.TempDir()
	notes = filepath.Join(bin, "notes")
	write(t, bin, map[string]string{"uv": "#!/bin/sh\nnotes=" + notes + `
echo "$1 $2" >>$notes
[ "$1" = --version ] && echo uv 1.2.3
while [ $# -gt 0 ]; do
	case $1 in
	compile) [ "$EDIT" ] && echo more >>"$EDIT" ;;
	-o) echo lock >"$2" ;;
	--relocatable) mkdir -p "$2/lib/python3.9/site-packages" ;;
	--python) echo P >"$2/lib/python3.9/site-packages/p.py" ;;
	esac
	shift
done
`})
	must.Do(t, os.Chmod(filepath.Join(bin, "uv"), 0o755))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	return notes
}

// TestMakes: what was made serves again, and what was damaged since is made again. Nothing is kept of a file that changes while uv reads it.
func TestMakes(t *testing.T) {
	notes := fakeUV(t)
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "r.txt")
	must.Do(t, os.WriteFile(file, []byte("a\n"), 0o600))
	make := func(env ...string) (*wire.Tree, error) {
		t.Helper()
		s, _, err := Open(t.Context(), file, none, false)
		must.Do(t, err)
		m := New(s, dir, 1, append(os.Environ(), env...), t.Logf)
		m.needs = host("a", "3.11", "x86_64", "2.36").Platform
		bundle, err := m.make(t.Context())
		if err != nil {
			return nil, err
		}
		return bundle.Tree(), nil
	}
	if _, err := make("EDIT=" + file); err == nil || !strings.Contains(err.Error(), "has changed while its environment was made") {
		t.Errorf("a file that is edited: %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("a file that is edited leaves %v", left)
	}
	tree, err := make()
	must.Do(t, err)
	if len(tree.Files) != 1 || tree.Files[0].Path != "lib/python3.11/site-packages/p.py" {
		t.Errorf("made %+v", tree)
	}
	for what, damage := range map[string]func() error{
		"unharmed":            func() error { return nil },
		"an empty list":       func() error { return os.Truncate(filepath.Join(tree.Root, "../tree"), 0) },
		"a file that is gone": func() error { return os.Remove(filepath.Join(tree.Root, tree.Files[0].Path)) },
		"a file that differs": func() error { return os.WriteFile(filepath.Join(tree.Root, tree.Files[0].Path), []byte("X\n"), 0o600) },
	} {
		must.Do(t, errors.Join(os.RemoveAll(notes), damage()))
		_, err := make()
		did, _ := os.ReadFile(notes)
		if text, _ := os.ReadFile(filepath.Join(tree.Root, tree.Files[0].Path)); err != nil || string(text) != "P\n" || (len(did) == 0) != (what == "unharmed") {
			t.Errorf("%s: %v, the file is %q, uv did %q", what, err, text, did)
		}
	}
}

// TestGetsUV: where there is no uv, pip gets it, and runs no module of the user's working directory.
func TestGetsUV(t *testing.T) {
	bin, dir := t.TempDir(), t.TempDir()
	write(t, bin, map[string]string{"python3": "#!/bin/sh\n[ \"$2\" = pip ] && /bin/mkdir bin && pwd -P >bin/where && printf '#!/bin/sh\\necho uv 1.2.3\\n' >bin/uv && /bin/chmod 755 bin/uv\n"})
	must.Do(t, os.Chmod(filepath.Join(bin, "python3"), 0o755))
	t.Setenv("PATH", bin)
	m := New(&Source{}, dir, 1, []string{"HOME=" + dir}, t.Logf)
	uv, err := m.uv(t.Context())
	must.Do(t, err)
	if where, _ := os.ReadFile(filepath.Join(filepath.Dir(uv), "where")); !strings.HasPrefix(string(where), dir) {
		t.Errorf("pip ran in %s", where)
	}
	must.Do(t, os.Truncate(uv, 0))
	if _, err := m.uv(t.Context()); err != nil || !runsUV(t.Context(), uv) {
		t.Errorf("a uv that is damaged: %v", err)
	}
}

// TestSources: a lock that names what is no wheel is refused with the package's name.
func TestSources(t *testing.T) {
	lock := "[[packages]]\nname = \"a\"\nversion = \"1\"\nwheels = [\n    { url = \"x\" },\n]\n\n[[packages]]\nname = \"mine\"\ndirectory = { path = \"..\" }\n"
	if found := sources.FindStringSubmatch(lock); found == nil || found[1] != "mine" {
		t.Errorf("%q", found)
	}
	if found := sources.FindString(strings.Replace(lock, "directory", "wheels", 1)); found != "" {
		t.Errorf("%q", found)
	}
}

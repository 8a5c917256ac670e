package launch

import (
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// learner is a program of two files that needs numpy and adder, and a program of adder's.
const learner = `mkdir -p /root/proj && cd /root/proj
cat >train.py <<'PYTHON'
import os, subprocess, sys
import numpy, gorun.numpy as hvd
import adder, model
hvd.init()
total = hvd.allreduce(numpy.ones(4), op=hvd.Sum)
said = subprocess.run(["adder-run"], capture_output=True, text=True, check=True).stdout.strip()
assert numpy.__file__.startswith(sys.prefix) and sys.prefix == os.environ["VIRTUAL_ENV"], sys.prefix
print("has", model.VALUE, total[0], adder.VERSION, said, flush=True)
PYTHON
echo 'VALUE = 1' >model.py`

// TestPython: hosts that have a Python and no package train with the packages of a file. The launcher sends them at most two and a
// half times, later nothing, and after a change what has changed. What goes wrong is one line.
func TestPython(t *testing.T) {
	const hosts = 4
	c := e2etest.NewCluster(t, hosts)
	wheels, numpy := c.Wheels()
	adder := func(version string, bulk int) int64 {
		noise := make([]byte, bulk)
		rand.Read(noise)
		return sizeOf(t, c.Wheel(wheels, "adder", version, "py3-none-any", map[string]string{"adder/noise": string(noise),
			"adder/__init__.py": fmt.Sprintf("VERSION = %q\ndef main(): print('I am', VERSION)\n", version)}))
	}
	size := sizeOf(t, numpy) + adder("1.0", 3_000_000)
	shell := func(host int, line string) {
		t.Helper()
		h := c.Launcher()
		if host > 0 {
			h = c.Host(host)
		}
		c.Shell(h, line)
	}
	require := func(lines string) {
		t.Helper()
		shell(0, "printf -- '--no-index\\n--find-links "+wheels+"\\n"+lines+"\\n' >/root/proj/requirements.txt")
	}
	run := func(env []string, flags ...string) e2etest.Result {
		t.Helper()
		cmd, stdout, stderr := c.Command(append(flags, "--wdir", "/root/proj", "--ship", "-np", "4", "-H", "host1,host2,host3,host4", "python3", "train.py")...)
		cmd.Env = append(cmd.Env, env...)
		cmd.Run() // its exit code is looked at
		return e2etest.Result{Code: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
	}
	trains := func(what, version string, most int64, env []string, flags ...string) {
		t.Helper()
		before, began := c.Sent(c.Launcher()), time.Now()
		r := run(env, flags...)
		bytes := c.Sent(c.Launcher()) - before
		if r.Code != 0 || strings.Count(r.Stdout, "has 1 4.0 "+version+" I am "+version+"\n") != hosts || int64(bytes) > most {
			t.Errorf("%s: exit code %d, sent %d bytes, at most %d\n%s%s", what, r.Code, bytes, most, r.Stdout, r.Stderr)
		}
		t.Logf("%s: sent %.1f MB, %.2f times the wheels, in %v", what, float64(bytes)/1e6, float64(bytes)/float64(size), time.Since(began))
	}
	fails := func(what, want, hint string) {
		t.Helper()
		r := run(nil, "--python", "/root/proj/requirements.txt")
		if r.Code == 0 || !strings.Contains(r.Stderr, want) || !strings.Contains(r.Stderr, hint) || strings.Contains(r.Stdout, "has ") {
			t.Errorf("%s: exit code %d, want %q and %q in\n%s%s", what, r.Code, want, hint, r.Stdout, r.Stderr)
		}
	}
	shell(0, learner)
	c.GorunBeside("-np", "4", "-H", "host1,host2,host3,host4", "true") // so that the binary is everywhere
	before := c.Sent(c.Launcher())

	require("numpy\\nadder")
	shell(2, "printf '#!/bin/sh\\nprintf \"3.9\\\\nx86_64\\\\n2.36\\\\n/usr/bin/python3\\\\n\"' >/root/old; chmod +x /root/old; mount --bind /root/old /usr/bin/python3")
	fails("another Python", "has Python 3.9 on x86_64", "install one version on all hosts, and name it in the program, such as python3.11 train.py")
	shell(2, "umount /usr/bin/python3; mount --bind /dev/null /usr/bin/python3")
	fails("no Python", "host2: start daemon: get the environment of Python: python3: ", "hosts need a Python, of the same version on all: apt install python3, or dnf install python3")
	shell(2, "umount /usr/bin/python3")
	if bytes := c.Sent(c.Launcher()) - before; int64(bytes) > size/2 {
		t.Errorf("sent %d bytes before the Pythons were looked at", bytes)
	}

	packages := []string{"--python", "/root/proj/requirements.txt"}
	trains("the first time", "1.0", size*5/2, nil, packages...)
	trains("the second time", "1.0", 1e6, nil, packages...)
	next := adder("1.1", 100_000)
	require("numpy\\nadder==1.1")
	trains("a new version", "1.1", 5/2*next+1e6, nil, packages...)

	// The environment that is active here; its packages come from where uv's own file says.
	shell(0, "mkdir -p /root/.config/uv && printf 'no-index = true\nfind-links = [\""+wheels+"\"]\n' >/root/.config/uv/uv.toml && "+
		"export "+strings.Join(c.Env, " ")+" VIRTUAL_ENV=/root/venv && uv venv -q /root/venv && uv pip install -q numpy adder==1.0")
	trains("what is active", "1.0", 1e6, []string{"VIRTUAL_ENV=/root/venv"}, "--python", "auto")

	require("adder==1.0 --hash=sha256:" + strings.Repeat("0", 64) + "\\n")
	fails("another hash", "Hash mismatch for `adder==1.0`", "the index has another file than was locked")
	must.Do(t, os.WriteFile(filepath.Join(wheels, "source-1.0.tar.gz"), []byte("x"), 0o644))
	require("source")
	fails("no wheel", "source==1.0 has no usable wheels", "gorun sends wheels only")
	require("nothing")
	fails("no package", "nothing was not found", "packages come from PyPI, unless UV_DEFAULT_INDEX, UV_INDEX, UV_FIND_LINKS or settings of pip name another index")

	// A job that is killed while its hosts get packages leaves nothing that the next one takes for whole, or waits for; two get them at once.
	adder("1.2", 8_000_000)
	require("numpy\\nadder==1.2")
	killed, _, _ := c.Command(append(packages, "--wdir", "/root/proj", "--ship", "-np", "2", "-H", "host1,host2", "python3", "train.py")...)
	must.Do(t, killed.Start())
	c.Await("files on their way", func() bool {
		out, _ := c.Host(1).Exec(t.Context(), "sh", "-c", "ls /root/.cache/gorun/files/*/*.*")
		return strings.Contains(out, ".")
	})
	killed.Process.Kill()
	killed.Wait()
	second := make(chan e2etest.Result)
	go func() { second <- run(nil, packages...) }()
	trains("after a kill", "1.2", 45e6, nil, packages...)
	if r := <-second; r.Code != 0 || strings.Count(r.Stdout, "has 1 4.0 1.2") != hosts {
		t.Errorf("beside another: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}

	shell(3, "rm -rf /root/.cache/gorun/files /root/.cache/gorun/trees && mkdir /root/.cache/gorun/files && mount -t tmpfs -o size=1m full /root/.cache/gorun/files")
	fails("a full disk", "no space left on device", "host3")
	c.ExpectLeft(40*time.Second, "/root/") // hosts of the killed launcher wait 20 s for it
	if r := c.GorunBeside("clean", "--older-than", "0s", "--dry-run"); r.Code != 0 || !strings.Contains(r.Stdout, "files ") {
		t.Errorf("clean: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
}

func sizeOf(t *testing.T, name string) int64 {
	t.Helper()
	info, err := os.Stat(name)
	must.Do(t, err)
	return info.Size()
}

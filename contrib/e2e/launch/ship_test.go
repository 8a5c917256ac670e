package launch

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
)

// project is a program of two modules that lies on the launcher's machine alone, with what stays there and what is not sound.
const project = `mkdir -p /root/proj/lib /root/proj/venv /root/proj/data && cd /root/proj
cat >train.py <<'PYTHON'
import os, sys
import gorun.numpy as hvd
import lib.model
hvd.init()
open("written", "w").close()
print("has", lib.model.VALUE, open("conf/a b").read(), len(open("big", "rb").read()), os.listdir("."), hvd.size(), *sys.argv[1:], flush=True)
PYTHON
touch lib/__init__.py venv/pyvenv.cfg data/ignored; echo 'VALUE = 1' >lib/model.py; echo data/ >.gitignore; echo SECRET >.env
mkdir conf; printf conf >'conf/a b'; head -c 6000000 /dev/urandom >big; printf x >"$(printf 'not\377utf')"; ln -s nowhere dangling; mkfifo fifo`

// TestShip: a program that is on the launcher's machine alone runs on six hosts, as at home. The launcher sends it at most two and
// a half times, and after a change one file.
func TestShip(t *testing.T) {
	const hosts = 6
	c := e2etest.NewCluster(t, hosts)
	shell := func(line string) string { return c.Shell(c.Launcher(), line) }
	var names []string
	for i := range hosts {
		names = append(names, fmt.Sprintf("host%d:1", i+1))
	}
	ship := func(flags ...string) e2etest.Result {
		defer c.ExpectLeft(5*time.Second, "/root/proj")
		return c.GorunBeside(append(append(flags, "--wdir", "/root/proj", "-np", strconv.Itoa(hosts), "-H", strings.Join(names, ",")), e2etest.Python, "train.py", "arg")...)
	}
	c.Gorun("-np", strconv.Itoa(hosts), "-H", strings.Join(names, ","), "true") // so that the binary is everywhere
	shell(project)
	if r := ship("--ship", "--dry-run"); r.Code != 0 || !strings.Contains(r.Stdout, "hosts get /root/proj: 8 files, 6.0 MB\n") {
		t.Errorf("dry run: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}

	before := c.Sent(c.Launcher())
	began := time.Now()
	r := ship("--ship")
	cold := time.Since(began)
	copies := float64(c.Sent(c.Launcher())-before) / 6e6
	if r.Code != 0 || strings.Count(r.Stdout, "has 1 conf 6000000 ") != hosts || copies > 2.5 {
		t.Errorf("exit code %d, sent %.1f times\n%s%s", r.Code, copies, r.Stdout, r.Stderr)
	}
	for _, not := range []string{".env'", "ignored", "venv'", "fifo'"} {
		if strings.Contains(r.Stdout, not) {
			t.Errorf("%s was sent:\n%s", not, r.Stdout)
		}
	}
	for _, want := range []string{".env may be secret, and is not sent", "dangling leads to nowhere, which is not there", "fifo is no regular file, and is not sent"} {
		if strings.Count(r.Stderr, want) != 1 {
			t.Errorf("no note %q in\n%s", want, r.Stderr)
		}
	}

	shell("sed -i 's/1/2/' /root/proj/lib/model.py; echo '!.env' >/root/proj/.gorunignore")
	before = c.Sent(c.Launcher())
	began = time.Now()
	r = ship("--ship")
	changed := c.Sent(c.Launcher()) - before
	if r.Code != 0 || strings.Count(r.Stdout, "has 2 conf 6000000 ") != hosts || strings.Count(r.Stdout, "'.env'") != hosts || changed > 2e6 {
		t.Errorf("exit code %d, sent %d bytes for a changed line\n%s%s", r.Code, changed, r.Stdout, r.Stderr)
	}
	t.Logf("the launcher sent 6 MB %.1f times to %d hosts in %v, and %d bytes for a changed line in %v", copies, hosts, cold, changed, time.Since(began))

	// What a former job has changed in a tree is mended, and what somebody has put into the cache is not believed.
	c.Shell(c.Host(2), "cd /root/.cache/gorun/trees; for t in *; do rm -f $t/lib/model.py; echo VALUE = 7 >$t/lib/model.py; done; for f in ../files/*/*; do [ $(stat -c %s $f) != 6000000 ] || { chmod u+w $f; echo more >>$f; }; done")
	if r = ship("--ship"); r.Code != 0 || strings.Count(r.Stdout, "has 2 conf 6000000 ") != hosts {
		t.Errorf("exit code %d after files were changed on a host\n%s%s", r.Code, r.Stdout, r.Stderr)
	}

	// Without the flag the error offers it.
	if r = c.GorunBeside("--wdir", "/", "-H", "host1", e2etest.Python, "/root/proj/train.py"); r.Code == 0 || !strings.Contains(r.Stderr, "--ship") {
		t.Errorf("exit code %d without --ship\n%s", r.Code, r.Stderr)
	}
	// A disk that is full ends the job with a line, and what came stays good.
	c.Shell(c.Host(3), "rm -rf /root/.cache/gorun/files /root/.cache/gorun/trees && mkdir /root/.cache/gorun/files && mount -t tmpfs -o size=1m full /root/.cache/gorun/files")
	if r = ship("--ship"); r.Code == 0 || !strings.Contains(r.Stderr, "host3") || !strings.Contains(r.Stderr, "get big: ") || !strings.Contains(r.Stderr, "no space left on device") {
		t.Errorf("exit code %d with a full disk\n%s", r.Code, r.Stderr)
	}
	// gorun clean knows what is there, with a tree that ranks have written into.
	if r = c.GorunBeside("clean", "-H", "host1", "--older-than", "0s", "--dry-run"); r.Code != 0 || !strings.Contains(r.Stdout, "files ") {
		t.Errorf("clean: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
}

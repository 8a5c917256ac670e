package python

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
	"gorun/contrib/must"
)

// newStockCluster is a lab with a Python that has Horovod's own library.
func newStockCluster(t *testing.T, hosts int) (python string, c *e2etest.Cluster) {
	t.Helper()
	python = os.Getenv("HOROVOD_PYTHON")
	if python == "" {
		t.Skip("set HOROVOD_PYTHON to a Python with stock Horovod, built with Gloo; make compat builds one")
	}
	t.Parallel()
	// Hosts of a lab have a /tmp of their own; the Python may lie there.
	return python, e2etest.NewClusterWith(t, hosts, lab.Options{Share: []string{filepath.Dir(filepath.Dir(python))}})
}

// TestStockHorovod runs a program with Horovod's own library, which finds its ranks by gorun.
func TestStockHorovod(t *testing.T) {
	python, c := newStockCluster(t, 2)
	for _, hosts := range []string{"host1:3", "host1:2,host2:1", "host1:1,host2:1"} {
		t.Run(hosts, func(t *testing.T) {
			ranks := map[string]string{"host1:3": "3", "host1:2,host2:1": "3", "host1:1,host2:1": "2"}[hosts]
			r := c.Gorun("--no-horovod-shim", "-np", ranks, "-H", hosts, python, "contrib/examples/digits_torch.py")
			if r.Code != 0 || !strings.Contains(r.Stdout, "accuracy") {
				t.Errorf("exit code %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
			}
			// Without the flag, the drop-in takes its place, and a line names that.
			r = c.Gorun("-np", ranks, "-H", hosts, python, "-c", "import horovod.torch as h; h.init(); print(h.size(), h.__file__)")
			if r.Code != 0 || strings.Count(r.Stdout, ranks+" ") != len(strings.Split(strings.TrimSpace(r.Stdout), "\n")) || strings.Contains(r.Stdout, filepath.Dir(filepath.Dir(python))) ||
				strings.Count(r.Stderr, "using gorun's drop-in instead of ") != 1 {
				t.Errorf("without --no-horovod-shim: exit code %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
			}
			if which := c.Gorun("--no-horovod-shim", "-np", "1", "-H", "host1", python, "-c", "import horovod.torch as h; print(h.__file__)"); !strings.Contains(which.Stdout, filepath.Dir(filepath.Dir(python))) {
				t.Errorf("this is not stock Horovod: %s", which.Stdout)
			}
		})
	}
}

// TestStockHorovodElastic is an elastic script of stock Horovod that loses a host, the first one, gets another one, and
// another one more: it goes on from its last commit each time, and all that end have the same weights.
func TestStockHorovodElastic(t *testing.T) {
	python, c := newStockCluster(t, 4)
	list := filepath.Join(c.Shared("stock"), "hosts")
	say := func(hosts ...string) {
		must.Do(t, os.WriteFile(list+".new", []byte(strings.Join(hosts, "\n")+"\n"), 0o600))
		must.Do(t, os.Rename(list+".new", list))
	}
	say("host1:1", "host2:1")
	j := c.Follow("--no-horovod-shim", "--min-np", "2", "--max-np", "4", "--host-discovery-script", "cat "+list,
		python, "testdata/elastic/stock.py", "--batches", "400")
	j.Await(`is rank 1 of 2 from batch 0`)
	j.Await(`batch 20$`)
	say("host1:1", "host2:1", "host3:1") // it hears of that, and interrupts itself
	j.Await(`is rank 2 of 3 from batch [1-9]`)
	// Gloo may end the processes of a host that lives, too: their slots are used again.
	if err := c.Host(1).Kill(); err != nil { // whose store it was
		t.Fatal(err)
	}
	say("host2:1", "host3:1")
	j.Await(`is rank 1 of 2 from batch [1-9]`)
	say("host2:1", "host3:1", "host4:1")
	worlds := func() int { found, _ := j.Out.Find(`is rank 2 of 3 from batch [1-9]`); return len(found) }
	c.Await("another world of three", func() bool { return worlds() == 2 })
	if err := j.Cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, j.Out)
	}
	if ends, _ := j.Out.Find(`ends as rank \d of 3 after 400 batches, same weights`); len(ends) != 3 {
		t.Errorf("%d ranks ended well, want 3:\n%s", len(ends), j.Out)
	}
	c.ExpectNothingLeft(10 * time.Second)
}

// meet finds the other ranks as stock Horovod does. Another user of each host gets nothing.
const meet = `import os, socket, time, urllib.error, urllib.request
at = os.environ["HOROVOD_GLOO_RENDEZVOUS_ADDR"], int(os.environ["HOROVOD_GLOO_RENDEZVOUS_PORT"])
base, rank, size = "http://%s:%d/global/" % at, int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
urllib.request.urlopen(urllib.request.Request(base + str(rank), data=b"value %d" % rank, method="PUT"))
for other in range(size):
    while True:
        try:
            assert urllib.request.urlopen(base + str(other)).read() == b"value %d" % other
            break
        except urllib.error.HTTPError as e:
            assert e.code == 404, e.code
            time.sleep(0.01)
child = os.fork()
if child == 0:
    os.setuid(12345)
    other = socket.create_connection(at)
    try:
        other.sendall(b"GET /global/0 HTTP/1.0\r\n\r\n")
        os._exit(1 if other.recv(1) else 0)
    except ConnectionError:
        os._exit(0)
print("met", size, "other user", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
`

// TestHostileRendezvous needs no stock Horovod: a job of it, elastic or not, is not read by other users of its hosts.
func TestHostileRendezvous(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	for _, flags := range [][]string{{"-np", "4", "-H", "host1:2,host2:2"}, {"-np", "4", "--min-np", "4", "-H", "host1:2,host2:2"}} {
		r := c.Gorun(append(append([]string{"--no-horovod-shim"}, flags...), "python3", "-c", meet)...)
		if r.Code != 0 || strings.Count(r.Stdout, "met 4 other user 0") != 4 {
			t.Errorf("%v: exit code %d\n%s\n%s", flags, r.Code, r.Stdout, r.Stderr)
		}
	}
}

package vm

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// unbroken checks that the world stayed the same.
func unbroken(j *e2etest.Training) {
	j.T.Helper()
	if j.Out.Has(`(is lost|epoch [2-9])`) || !j.Out.Has(`ends as rank 1 of \d after \d+ batches, 1 worlds`) {
		j.T.Errorf("the world did not stay as it was:\n%s", j.Out)
	}
}

// vsphere is what the hosts of a cluster believe to run on; see testdata/vmtools.
type vsphere struct {
	t   *testing.T
	dir string
}

func vsphereOn(c *e2etest.Cluster) *vsphere {
	c.T.Helper()
	dir := c.Shared("vsphere")
	for _, name := range []string{"vmtoolsd", "vmware-toolbox-cmd"} {
		b, err := os.ReadFile(filepath.Join(c.Root, "testdata/vmtools", name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o700)
		}
		must.Do(c.T, err)
	}
	return &vsphere{c.T, dir}
}

// tell announces an event to a host.
func (v *vsphere) tell(host, event string, id int, more string) {
	v.t.Helper()
	text := fmt.Sprintf(`{"result":true,"eventType":%q,"opType":"host-migration","eventGenTimeInSec":%d,"notificationTimeoutInSec":60,"operationId":%d%s}`,
		event, time.Now().Unix(), id, more)
	file := filepath.Join(v.dir, "new")
	must.Do(v.t, os.WriteFile(file, []byte(text), 0o600))
	must.Do(v.t, os.Rename(file, filepath.Join(v.dir, host, "events", fmt.Sprint(time.Now().UnixNano()))))
}

// log returns the requests of a host to vSphere.
func (v *vsphere) log(host string) string {
	b, _ := os.ReadFile(filepath.Join(v.dir, host, "log"))
	return strings.Join(strings.Fields(string(b)), " ")
}

// TestAnnouncedMoves: vSphere announces to two hosts that they will be moved, one after the other, the second of which
// has lost its registration before. The others know before vSphere may go on, and training goes on afterwards; also
// after announcements that are stale, change their mind, or whose move fails.
func TestAnnouncedMoves(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	v := vsphereOn(c)
	j := c.TrainOn("-v", "--vmtoolsd", filepath.Join(v.dir, "vmtoolsd"), "--min-np", "2", "-H", "host1:1,host2:1")
	j.Await(`host1: vSphere announces moves of this machine and waits up to 120 s`)
	j.Await(`host2: vSphere announces moves of this machine`)
	j.Await(`batch 10$`)
	must.Do(t, os.Remove(filepath.Join(v.dir, "host1", "token")))
	for i, host := range []string{"host2", "host1"} {
		id := 6279072692702276663 + i
		v.tell(host, "start", id, "")
		j.Await(`gorun: ` + host + `: ready to be moved, vSphere knows`)
		must.Do(t, c.Host(2-i).Freeze())
		time.Sleep(500 * time.Millisecond) // the move
		must.Do(t, c.Host(2-i).Thaw())
		v.tell(host, "end", id, `,"opStatus":"success"`)
		j.Await(`gorun: ` + host + ` renews its connections: success`)
		said := 0
		for _, pattern := range []string{` is about to be moved: vSphere waits up to 1m0s`, `: ready to be moved`, ` renews its connections: success`} {
			_, at := j.Out.Find(`^gorun: ` + host + pattern)
			if len(at) != 1 {
				t.Errorf("%d lines say that %s%s", len(at), host, pattern)
			}
			text := j.Out.String()
			if here := strings.Index(text, "gorun: "+host+pattern); here < said {
				t.Errorf("%s%s comes too early:\n%s", host, pattern, text)
			} else {
				said = here
			}
		}
	}
	// An announcement that no one took in time, and the end of a move that no one knows of, mean nothing.
	must.Do(t, c.Host(2).Freeze())
	v.tell("host2", "start", 8001, `,"notificationTimeoutInSec":1`)
	v.tell("host2", "end", 8001, `,"opStatus":"failure"`)
	v.tell("host2", "end", 8002, `,"opStatus":"failure"`)
	time.Sleep(2500 * time.Millisecond) // longer than vSphere waits, and than it takes to look twice
	must.Do(t, c.Host(2).Thaw())
	j.Await(`^gorun: host2: vSphere announced a move, but that was read too late: its end was there as well`)
	// The next one may take longer than was announced at first, and fails: the machine is where it was, and training goes
	// on.
	v.tell("host2", "start", 8003, `,"eventGenTimeInSec":1000`) // whatever vSphere's clock shows
	c.Await("second readiness", func() bool {
		_, at := j.Out.Find(`^gorun: host2: ready to be moved, vSphere knows`)
		return len(at) == 2
	})
	v.tell("host2", "timeout-change", 8003, `,"newNotificationTimeoutInSec":90`)
	c.Await("word that the other time is known", func() bool { return strings.Count(v.log("host2"), "ack 8003") == 2 })
	v.tell("host2", "end", 8003, `,"opStatus":"failure"`)
	j.Await(`gorun: host2 renews its connections: failure`)
	if _, at := j.Out.Find(`^gorun: host2 is about to be moved`); len(at) != 2 {
		t.Errorf("host2 was about to be moved %d times, want 2\n%s", len(at), j.Out)
	}
	told, _ := j.Out.Find(`batch \d+$`)
	c.Await("batch after all that", func() bool { more, _ := j.Out.Find(`batch \d+$`); return len(more) > len(told)+5 })
	j.EndNow(2)
	unbroken(j)
	for host, want := range map[string]string{
		"host2": "register ack 6279072692702276663 ack 8003 ack 8003 unregister",
		"host1": "register register ack 6279072692702276664 unregister",
	} {
		if got := v.log(host); got != want {
			t.Errorf("vSphere heard from %s: %s, want %s", host, got, want)
		}
	}
}

// TestKilledRegistration: a daemon that is killed cannot end its registration with vSphere, of which a machine has room
// for one. The next job ends it.
func TestKilledRegistration(t *testing.T) {
	c := e2etest.NewCluster(t, 1)
	v := vsphereOn(c)
	args := []string{"-v", "--vmtoolsd", filepath.Join(v.dir, "vmtoolsd"), "-np", "1", "-H", "host1:1", "sleep"}
	j := c.Follow(append(args, "1000")...)
	j.Await(`host1: vSphere announces moves of this machine`)
	c.Slay(j.Cmd, c.Host(1), "worker --daemon")
	if err := j.Cmd.Wait(); err == nil {
		t.Error("a job whose daemon was killed ends well")
	}
	r := c.Gorun(append(args, "1")...)
	if r.Code != 0 || !strings.Contains(r.Stderr, "host1: vSphere announces moves of this machine") {
		t.Errorf("the next job ends with %d:\n%s", r.Code, r.Stderr)
	}
	if got := v.log("host1"); got != "register unregister register unregister" {
		t.Errorf("vSphere heard %s", got)
	}
}

// TestMovesAtOnce: vSphere wants to move two machines at the same time. They go one after the other, the ring pauses
// for each of them, and training goes on between and after them.
func TestMovesAtOnce(t *testing.T) {
	c := e2etest.NewCluster(t, 3)
	c.Torch = true
	v := vsphereOn(c)
	j := c.TrainOn("-v", "--vmtoolsd", filepath.Join(v.dir, "vmtoolsd"), "--min-np", "3", "-H", "host1:1,host2:1,host3:1")
	for _, host := range []string{"host1", "host2", "host3"} {
		j.Await(host + `: vSphere announces moves of this machine`)
	}
	j.Await(`batch 10$`)
	v.tell("host2", "start", 7001, "")
	v.tell("host3", "start", 7002, "")
	j.Await(`^gorun: host[23]: ready to be moved, vSphere knows`)
	moving := map[int]string{2: "host2", 3: "host3"}
	for range 2 {
		for n, host := range moving {
			if !j.Out.Has(`^gorun: ` + host + `: ready to be moved`) {
				continue
			}
			delete(moving, n)
			must.Do(t, c.Host(n).Freeze())
			time.Sleep(time.Second) // the move; the other one would be ready by now
			for _, other := range moving {
				if j.Out.Has(`^gorun: ` + other + `: ready to be moved`) {
					t.Errorf("%s and %s move at once:\n%s", host, other, j.Out)
				}
			}
			must.Do(t, c.Host(n).Thaw())
			v.tell(host, "end", 7000+n-1, `,"opStatus":"success"`)
			j.Await(`gorun: ` + host + ` renews its connections: success`)
			break
		}
		for _, other := range moving {
			j.Await(`^gorun: ` + other + `: ready to be moved, vSphere knows`)
		}
	}
	// A host that cannot have its turn in time is moved all the same.
	v.tell("host2", "start", 7003, `,"notificationTimeoutInSec":50`)
	j.Await(`^gorun: host2 is about to be moved: vSphere waits up to 50s`)
	// It is host3, for which vSphere waits less than it announced at first.
	v.tell("host3", "start", 7004, `,"notificationTimeoutInSec":50`)
	v.tell("host3", "timeout-change", 7004, `,"newNotificationTimeoutInSec":4`)
	begun := time.Now()
	j.Await(`^gorun: host3: will be moved while operations are under way: vSphere waits no longer`)
	if took := time.Since(begun); took > 30*time.Second {
		t.Errorf("told the others after %v, when vSphere waited for 4 s", took)
	}
	j.Await(`^gorun: host3 is about to be moved: vSphere waits up to 50s`)
	v.tell("host3", "end", 7004, `,"opStatus":"success"`)
	v.tell("host2", "end", 7003, `,"opStatus":"success"`)
	c.Await("end of the second moves", func() bool {
		_, moved := j.Out.Find(`^gorun: host[23] renews its connections: success`)
		return len(moved) == 4
	})
	j.EndNow(3)
	unbroken(j)
	if !j.Out.Has(`^gorun: host1: was paused between operations \d times?, [0-9.]+ s in all`) {
		t.Errorf("the end does not tell how long the ring was paused:\n%s", j.Out)
	}
	for _, host := range []string{"host2", "host3"} {
		if !j.Out.Has(`^gorun: ` + host + `: the ring is paused for the move after [0-9.]+ s`) {
			t.Errorf("the ring was not paused for %s:\n%s", host, j.Out)
		}
		_, ready := j.Out.Find(`^gorun: ` + host + `: ready to be moved`)
		_, back := j.Out.Find(`^gorun: ` + host + ` renews its connections: success`)
		_, batches := j.Out.Find(`batch \d+$`)
		if len(ready) == 0 || len(back) == 0 {
			t.Fatalf("%s is ready %d times and back %d times", host, len(ready), len(back))
		}
		within := 0
		for _, at := range batches {
			if at.After(ready[0].Add(100*time.Millisecond)) && at.Before(back[0]) {
				within++
			}
		}
		if within > 1 { // a rank on a busy machine may print late that a batch ended before the pause
			t.Errorf("%d batches were trained while %s moved:\n%s", within, host, j.Out)
		}
	}
}

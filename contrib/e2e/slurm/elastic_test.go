package slurm

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// saver trains until a signal asks it to save: then it writes a checkpoint and ends, and goes on from there the next time.
const saver = `
import os, signal, sys, time
import numpy as np
import gorun.numpy as hvd
asked = []
signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
file = sys.argv[1]
hvd.init()
step = int(open(file).read()) if os.path.exists(file) else 0
print(f"begins at {step}", flush=True)
while True:
    step += 1
    stop = hvd.allreduce(np.array([float(len(asked))], dtype=np.float32), op=hvd.Sum, name="stop")[0] > 0
    if stop or step == 100000:
        break
    time.sleep(0.02)
if hvd.rank() == 0:
    open(file, "w").write(str(step))
    print(f"saved {step}", flush=True)
hvd.barrier()
`

// TestTimeLimit: a minute before the time limit Slurm signals the script; gorun passes the signal on, the program saves its
// state, and the requeued job goes on from there.
func TestTimeLimit(t *testing.T) {
	long(t)
	c := newSlurm(t, 2, 4)
	c.write("saver.py", saver, 0o644)
	job := c.batch(fmt.Sprintf(`echo run >>%[1]s/runs
"$1" --no-tag-output %[2]s %[1]s/saver.py %[1]s/saved & gorun=$!
trap 'kill -USR1 $gorun' USR1
wait $gorun; wait $gorun
status=$?
[ "$(wc -l <%[1]s/runs)" -gt 1 ] || scontrol requeue $SLURM_JOB_ID
exit $status`, c.dir, e2etest.Python), "-N2", "--ntasks-per-node=1", "--requeue", "--open-mode=append", "-t", "10", "--signal=B:USR1@60")
	c.Await("the first run", func() bool { return strings.Contains(c.read(job+".out"), "begins at 0") })
	// The time limit comes near, as far as Slurm is concerned: it looks every half minute.
	c.slurm("scontrol", "update", "jobid="+job, "timelimit=1").Good(t)
	c.Await("the state", func() bool { return strings.Contains(c.read(job+".out"), "saved ") })
	c.Await("the second run", func() bool { return strings.Count(c.read(job+".out"), "begins at ") == 4 })
	saved := strings.TrimSpace(c.read("saved"))
	if strings.Count(c.read(job+".out"), "begins at "+saved+"\n") != 2 {
		t.Errorf("the second run does not begin at %s:\n%s%s", saved, c.read(job+".out"), c.read(job+".err"))
	}
	c.slurm("scancel", job).Good(t)
	c.ends(job)
	c.nothingLeft()
}

// TestGrowAndShrink: an elastic job follows the nodes that Slurm gives to its allocation, and takes from it. Without a
// database Slurm changes the size of a job only once.
func TestGrowAndShrink(t *testing.T) {
	long(t)
	c := newSlurm(t, 4, 2)
	grows := c.elastic("host[1-2]")
	grows.await(2)
	c.give("host[3-4]", grows.job)
	grows.await(4)
	grows.end()
	shrinks := c.elastic("host[1-4]")
	shrinks.await(4)
	c.slurm("scontrol", "update", "jobid="+shrinks.job, "NodeList=host[1-3]").Good(t)
	shrinks.await(3)
	shrinks.end()
	c.nothingLeft()
}

// elastic is a training on nodes that may change.
type elastic struct {
	*cluster
	job, until string
	seen       int // of its output, by await
}

// elastic starts a training with a rank on each of some nodes.
func (c *cluster) elastic(nodes string) *elastic {
	c.T.Helper()
	until := fmt.Sprintf("%s/enough-%d", c.dir, time.Now().UnixNano())
	count := len(lines(strings.ReplaceAll(c.slurm("scontrol", "show", "hostnames", nodes).Stdout, " ", "\n")))
	job := c.batch(fmt.Sprintf(`exec "$1" --no-tag-output --min-np 1 -np %d %s testdata/elastic/train.py --numpy --pause 0.03 --batches 0 --until %s`,
		count, e2etest.Python, until), fmt.Sprintf("-N%d", count), "--ntasks-per-node=1", "--no-kill", "-w", nodes)
	return &elastic{cluster: c, job: job, until: until}
}

// await waits for a world of some ranks that begins after the one of the last call.
func (j *elastic) await(ranks int) {
	j.T.Helper()
	begins := fmt.Sprintf(" of %d from batch ", ranks)
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		text := j.read(j.job + ".out")
		if news := text[j.seen:]; strings.Count(news, begins) >= ranks {
			j.seen += strings.LastIndex(news, begins) + len(begins)
			return
		}
		if time.Now().After(deadline) {
			j.T.Fatalf("no world of %d:\n%s%s", ranks, text, j.read(j.job+".err"))
		}
	}
}

// end lets the training end.
func (j *elastic) end() {
	j.T.Helper()
	must.Do(j.T, os.WriteFile(j.until, nil, 0o600))
	if got := j.ends(j.job); got != "COMPLETED" {
		j.T.Errorf("the job is %s:\n%s", got, j.read(j.job+".err"))
	}
}

// TestNodeDown: an elastic job goes on without a node that is lost, and with it when it is back. Slurm keeps the node in the
// allocation if it is back before SlurmdTimeout, and otherwise takes it out, until another job gives it to this one.
func TestNodeDown(t *testing.T) {
	long(t)
	c := newSlurm(t, 2, 2)
	job := c.elastic("host[1-2]")
	job.await(2)
	must.Do(t, c.Host(2).PowerOff())
	c.powerOn(2)
	job.await(1)
	job.await(2)
	if got := c.state(job.job, "NodeList"); got != "host[1-2]" {
		t.Errorf("the job has %s", got)
	}
	must.Do(t, c.Host(2).PowerOff())
	job.await(1)
	c.Await("node that is down", func() bool { return c.state(job.job, "NodeList") == "host1" })
	c.powerOn(2)
	c.awaitIdle("host2")
	c.give("host2", job.job)
	job.await(2)
	job.end()
	if said := job.read(job.job + ".err"); strings.Contains(said, "host1 is lost") {
		t.Errorf("the other node is lost, too:\n%s", said)
	}
	c.awaitIdle("host1", "host2")
	if r := c.salloc([]string{"-N2", "--ntasks-per-node=1"}, "--no-tag-output", "sh", "-c", whoami); r.Code != 0 || len(lines(r.Stdout)) != 2 {
		t.Errorf("exit code %d: %s%s", r.Code, r.Stdout, r.Stderr)
	}
}

// TestSlurmdDown: a job does not notice that a node's slurmd is killed and started again. While it is down for longer than
// SlurmdTimeout, Slurm takes the node out of the allocation.
func TestSlurmdDown(t *testing.T) {
	long(t)
	c := newSlurm(t, 2, 2)
	job := c.elastic("host[1-2]")
	job.await(2)
	kill := func() {
		t.Helper()
		must.Do(t, syscall.Kill(c.find(c.Host(2), "slurmd -D"), syscall.SIGKILL))
	}
	start := func() { c.serve(c.Host(2), "slurmd", "-D", "-N", "host2", "-f", c.conf) }
	kill()
	time.Sleep(2 * time.Second)
	start()
	c.Await("node that is known", func() bool {
		return c.slurm("srun", "--overlap", "--jobid="+job.job, "-w", "host2", "-N1", "-n1", "true").Code == 0
	})
	if text := job.read(job.job + ".out")[job.seen:]; strings.Contains(text, " from batch ") {
		t.Errorf("the job has noticed that slurmd was away:\n%s%s", text, job.read(job.job+".err"))
	}
	kill()
	job.await(1)
	start()
	c.awaitIdle("host2")
	c.give("host2", job.job)
	job.await(2)
	job.end()
	c.nothingLeft()
}

// powerOn starts a node again.
func (c *cluster) powerOn(node int) {
	c.T.Helper()
	must.Do(c.T, c.Host(node).Boot(c.T.Context()))
	c.boot(c.Host(node))
}

// awaitIdle waits until nodes have no job.
func (c *cluster) awaitIdle(nodes ...string) {
	c.T.Helper()
	c.Await("idle nodes", func() bool {
		return strings.Count(c.slurm("sinfo", "-h", "-N", "-t", "idle", "-n", strings.Join(nodes, ","), "-o", "%n").Stdout, "host") == len(nodes)
	})
}

// give adds nodes to a job, as scontrol(1) describes it: another job gets them and passes them on.
func (c *cluster) give(nodes, job string) {
	c.T.Helper()
	count := len(lines(strings.ReplaceAll(c.slurm("scontrol", "show", "hostnames", nodes).Stdout, " ", "\n")))
	c.slurm("salloc", "--no-shell", fmt.Sprintf("-N%d", count), "-w", nodes, "-J", "giver", "--dependency=expand:"+job).Good(c.T)
	giver := strings.TrimSpace(c.slurm("squeue", "-h", "-n", "giver", "-o", "%i").Stdout)
	c.slurm("scontrol", "update", "jobid="+giver, "NumNodes=0").Good(c.T)
}

// TestOtherCommands: the same by a command that takes one host, as those of other schedulers do; the stand-in leads there by
// ssh. One of them passes on no standard input.
func TestOtherCommands(t *testing.T) {
	c := &cluster{Cluster: e2etest.NewCluster(t, 2)}
	c.dir = c.Shared("commands")
	bin := c.dir + "/bin"
	must.Do(t, os.Mkdir(bin, 0o755))
	// Like ssh, they put the words together for a shell.
	c.write("bin/blaunch", "#!/bin/sh\n[ \"$1\" = -z ] || exit 9\nhost=$2; shift 2\nexec ssh $host \"$*\"", 0o755)
	c.write("bin/qrsh", "#!/bin/sh\n[ \"$1\" = -inherit ] || exit 9\nhost=$2; shift 2\nexec ssh $host \"$*\"", 0o755)
	c.write("bin/pbsdsh", "#!/bin/sh\n[ \"$1\" = -h ] && [ \"$3\" = -- ] || exit 9\nhost=$2; shift 3\nexec ssh -n $host \"$*\" >/dev/null", 0o755)
	home := c.Shared("home") // hosts of PBS share it
	for _, launcher := range []string{"blaunch", "qrsh", "pbsdsh", "ssh {host} {program}"} {
		begin := time.Now()
		cmd, stdout, stderr := c.Command("--launcher", launcher, "-H", "host1:2,host2", "--no-tag-output", "sh", "-c", whoami)
		cmd.Env = append(cmd.Env, "PATH="+bin+":/usr/bin:/bin:/usr/sbin", "XDG_CACHE_HOME="+home)
		err := cmd.Run()
		if got := lines(stdout.String()); err != nil || len(got) != 3 || !strings.HasPrefix(got[2], "2 of 3 on host2") {
			t.Errorf("%s: %v, got %q\n%s", launcher, err, got, stderr)
		}
		t.Logf("%s: %v", launcher, time.Since(begin))
		if left, _ := os.ReadDir(home + "/gorun/steps"); len(left) != 0 {
			t.Errorf("%s leaves its orders behind: %v", launcher, left)
		}
		c.nothingLeft()
	}
}

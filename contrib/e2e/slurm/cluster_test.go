package slurm

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
	"gorun/contrib/must"
)

// programs are those of Slurm and munge, with Debian's package for each.
var programs = []struct{ name, pkg string }{
	{"slurmctld", "slurmctld"}, {"slurmd", "slurmd"}, {"srun", "slurm-client"}, {"munged", "munge"},
}

// cluster is a lab with Slurm.
type cluster struct {
	*e2etest.Cluster
	dir  string // all hosts see it
	conf string
}

// long skips a test that takes more time than make test has.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("a part of make test-all: it waits for Slurm")
	}
}

// newSlurm starts Slurm on a lab. Each node claims so many CPUs.
func newSlurm(t *testing.T, nodes, cpus int) *cluster {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p.name); err != nil {
			t.Skipf("no Slurm: apt-get install %s", p.pkg)
		}
	}
	c := &cluster{Cluster: e2etest.NewCluster(t, nodes)}
	c.dir = c.Shared("slurm")
	c.conf = filepath.Join(c.dir, "slurm.conf")
	key := make([]byte, 1024)
	rand.Read(key) // never fails
	c.write("munge.key", string(key), 0o400)
	c.write("slurm.conf", fmt.Sprintf(`ClusterName=lab
SlurmctldHost=launcher
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=/run/munge.socket,cred_expire=5
CredType=cred/munge
StateSaveLocation=/run/slurm-state
SlurmdSpoolDir=/run/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=10
GresTypes=gpu
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,permit_job_expansion,requeue_delay=0
SlurmdParameters=config_overrides
SlurmdTimeout=6
MessageTimeout=10
KillWait=4
ReturnToService=2
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName=host[1-%d] CPUs=%d RealMemory=1000 Gres=gpu:1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
`, nodes, cpus), 0o644)
	c.write("cgroup.conf", "CgroupPlugin=cgroup/v1\n", 0o644) // the other one needs systemd; nothing uses it here
	c.write("gres.conf", "Name=gpu File=/dev/null\n", 0o644)  // as far as Slurm knows
	c.munge(c.Launcher())
	c.serve(c.Launcher(), "slurmctld", "-D", "-f", c.conf)
	for _, h := range c.Hosts() {
		c.boot(h)
	}
	c.Await("nodes", func() bool {
		return strings.Count(c.slurm("sinfo", "-h", "-N", "-t", "idle", "-o", "%n").Stdout, "host") == nodes
	})
	return c
}

// boot starts what a node runs.
func (c *cluster) boot(h *lab.LabHost) {
	c.T.Helper()
	c.munge(h)
	c.serve(h, "slurmd", "-D", "-N", h.Name(), "-f", c.conf)
}

func (c *cluster) munge(h *lab.LabHost) {
	c.T.Helper()
	c.serve(h, "munged", "--foreground", "--force", "--key-file="+filepath.Join(c.dir, "munge.key"), "--socket=/run/munge.socket",
		"--pid-file=/run/munged.pid", "--log-file=/run/munged.log", "--seed-file=/run/munged.seed")
}

// serve runs a daemon on a host until the test ends.
func (c *cluster) serve(h *lab.LabHost, name string, args ...string) {
	c.T.Helper()
	said := new(e2etest.Watch)
	cmd := h.Command(c.T.Context(), name, args...)
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	must.Do(c.T, cmd.Start())
	ended := make(chan struct{})
	go func() { cmd.Wait(); close(ended) }() // a host that is powered off has no end before
	c.T.Cleanup(func() {
		cmd.Process.Kill()
		<-ended
		if c.T.Failed() && name != "munged" {
			text := said.String()
			c.T.Logf("%s on %s:\n%s", name, h.Name(), text[max(0, len(text)-2000):])
		}
	})
}

func (c *cluster) write(name, text string, mode os.FileMode) string {
	c.T.Helper()
	path := filepath.Join(c.dir, name)
	must.Do(c.T, os.WriteFile(path, []byte(text), mode))
	return path
}

// read returns a file of the shared directory, "" while there is none.
func (c *cluster) read(name string) string {
	text, _ := os.ReadFile(filepath.Join(c.dir, name))
	return string(text)
}

// command prepares a command on the login node.
func (c *cluster) command(name string, args ...string) (cmd *lab.Cmd, stdout, stderr *e2etest.Watch) {
	stdout, stderr = new(e2etest.Watch), new(e2etest.Watch)
	cmd = c.Launcher().Command(c.T.Context(), name, args...)
	cmd.Dir = c.Root
	cmd.Env = append(append(cmd.Env, c.Env...), "SLURM_CONF="+c.conf)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// slurm runs a command on the login node to its end.
func (c *cluster) slurm(name string, args ...string) e2etest.Result {
	c.T.Helper()
	cmd, stdout, stderr := c.command(name, args...)
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.T.Fatal(err)
	}
	return e2etest.Result{Code: cmd.ProcessState.ExitCode(), Stdout: stdout.String(), Stderr: stderr.String()}
}

// salloc runs gorun on the login node in an allocation of so many nodes.
func (c *cluster) salloc(options []string, gorun ...string) e2etest.Result {
	c.T.Helper()
	r := c.slurm("salloc", slices.Concat([]string{"-Q"}, options, []string{c.Binary}, gorun)...)
	c.nothingLeft()
	return r
}

// batch submits a script, whose standard output and error go to files of the shared directory by the number of the job.
func (c *cluster) batch(script string, options ...string) (job string) {
	c.T.Helper()
	file := c.write(fmt.Sprintf("script-%d", time.Now().UnixNano()), "#!/bin/sh\n"+script, 0o755)
	args := slices.Concat([]string{"--parsable", "-o", c.dir + "/%A.out", "-e", c.dir + "/%A.err", "-D", c.Root}, options, []string{file, c.Binary})
	r := c.slurm("sbatch", args...).Good(c.T)
	return strings.TrimSpace(r.Stdout)
}

// state returns what Slurm says about a job.
func (c *cluster) state(job, field string) string {
	c.T.Helper()
	said := c.slurm("scontrol", "show", "job", "-o", job).Stdout
	if m := regexp.MustCompile(`\b` + field + `=(\S+)`).FindStringSubmatch(said); m != nil {
		return m[1]
	}
	return ""
}

// ends waits until a job is in one of the final states, and returns which.
func (c *cluster) ends(job string) (state string) {
	c.T.Helper()
	c.Await("end of job "+job, func() bool {
		state = c.state(job, "JobState")
		return !slices.Contains([]string{"PENDING", "RUNNING", "COMPLETING", "REQUEUED", "CONFIGURING"}, state)
	})
	return state
}

// servers are the processes that a host has without a job.
var servers = []string{"sshd", "munged", "slurmd", "slurmctld", "slurmscriptd", "gorun-lab"}

// rest lists the processes that jobs have left on all hosts.
func (c *cluster) rest() (left []string) {
	for _, h := range append(c.Hosts(), c.Launcher()) {
		for _, p := range h.Processes() {
			words := strings.Fields(strings.TrimLeft(p.Args, ": ") + " ?")
			name := filepath.Base(strings.Trim(words[0], "[]:"))
			if p.Inner != 1 && p.State != 'Z' && !slices.Contains(servers, name) {
				left = append(left, h.Name()+": "+p.String())
			}
		}
	}
	return left
}

// nothingLeft fails the test unless all processes of jobs vanish.
func (c *cluster) nothingLeft() {
	c.T.Helper()
	var left []string
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		if left = c.rest(); len(left) == 0 {
			return
		}
	}
	c.T.Errorf("left behind:\n%s", strings.Join(left, "\n"))
}

// lines returns the lines of a text in order of the alphabet.
func lines(text string) []string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	slices.Sort(all)
	return all
}

package mpi

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/must"
)

// TestMPIJob is the launcher of a Kubeflow MPIJob: the operator's hostfile and variables, its way of mpirun's
// flags, no -np and no -H, and a worker that is up only after the launcher has started.
func TestMPIJob(t *testing.T) {
	c := e2etest.NewCluster(t, 2)
	late := c.Host(2)
	must.Do(t, late.PowerOff())
	const script = `printf 'host1 slots=2\nhost2 slots=2\n' >"$HOME/hostfile"
export K_MPI_JOB_ROLE=launcher OMPI_MCA_orte_default_hostfile="$HOME/hostfile" OMPI_MCA_orte_keep_fqdn_hostnames=true \
	OMPI_MCA_plm_rsh_args='-o ConnectionAttempts=10' OMPI_MCA_orte_set_default_slots=2
"$0" --allow-run-as-root -mca pml ob1 --no-tag-output sh -c 'echo $HOROVOD_HOSTNAME $RANK of $WORLD_SIZE ${OMPI_MCA_orte_default_hostfile-scrubbed}'
status=$?
rm "$HOME/hostfile"
exit $status`
	var stdout, stderr bytes.Buffer
	cmd := c.Launcher().Command(t.Context(), "sh", "-c", script, c.Binary)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	must.Do(t, cmd.Start())
	must.Report(t, late.Boot(t.Context()))
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	slices.Sort(lines)
	want := []string{"host1 0 of 4 scrubbed", "host1 1 of 4 scrubbed", "host2 2 of 4 scrubbed", "host2 3 of 4 scrubbed"}
	if !slices.Equal(lines, want) {
		t.Errorf("got %q, want %q\n%s", lines, want, stderr.String())
	}
	c.ExpectNothingLeft(5 * time.Second)
}

// operated is a lab in which launcher and workers have what the operator and its base images give to the pods of the
// manifest's MPIJob.
type operated struct {
	*e2etest.SSHCluster
	workers []string // names, which no one can resolve yet
}

func newOperated(t *testing.T, slots int) *operated {
	job := e2etest.Manifest(t)
	workers := job.Spec.MPIReplicaSpecs["Worker"].Replicas
	c := &operated{SSHCluster: e2etest.NewSSHCluster(t, workers)}
	hostfile := ""
	for i := range workers {
		c.workers = append(c.workers, fmt.Sprintf("%s-worker-%d.%[1]s.default.svc", job.Metadata.Name, i))
		hostfile += fmt.Sprintf("%s slots=%d\n", c.workers[i], slots)
	}
	// The ConfigMap, and the names of a cluster's DNS.
	must.Do(t, os.Mkdir(filepath.Join(c.Dir, "mpi"), 0o755))
	c.Write("mpi/hostfile", hostfile, 0o444)
	c.discover()
	c.resolve()
	// The Secret: id_rsa is a key for ECDSA, in the format of old.
	key := filepath.Join(c.Dir, "id_rsa")
	c.Shell(c.Launcher(), "ssh-keygen -q -t ecdsa -b 521 -m PEM -N '' -C '' -f "+key)
	c.Shell(c.Launcher(), `rm -r /root/.ssh && mkdir -m 700 /root/.ssh && cp `+key+` `+key+`.pub /root/.ssh
mount -n -t tmpfs -o mode=700 lab /mnt && cp -a /etc /mnt/etc && mkdir /mnt/etc/mpi
printf 'StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n' >/mnt/etc/ssh/ssh_config
mount -n --bind /mnt/etc /etc && mount -n --bind `+c.Dir+`/mpi /etc/mpi && mount -n --bind `+c.Dir+`/hosts /etc/hosts`)
	for _, h := range c.Hosts() {
		c.Shell(h, "cp "+key+".pub /root/.ssh/authorized_keys")
	}
	return c
}

// resolve makes the names of these workers known, and no others.
func (c *operated) resolve(workers ...int) {
	text := "127.0.0.1 localhost\n"
	for _, i := range workers {
		text += fmt.Sprintf("%s %s\n", c.Host(i+1).Address(), c.workers[i])
	}
	c.Write("hosts", text, 0o644) // in place, because it is mounted
}

// discover writes the operator's script, with the workers that run.
func (c *operated) discover(workers ...int) {
	text := "#!/bin/sh\n"
	for _, i := range workers {
		text += "echo " + c.workers[i] + "\n"
	}
	path := c.Write("mpi/discover_hosts.new", text, 0o555)
	if err := os.Rename(path, filepath.Join(c.Dir, "mpi", "discover_hosts.sh")); err != nil { // as ConfigMaps change
		c.T.Fatal(err)
	}
}

// launch runs the manifest's command with other flags and another program, and calls up when the first worker was
// reached, which is the only one whose name is known.
func (c *operated) launch(slots int, flags []string, up func()) {
	c.T.Helper()
	cmd, stdout, stderr := c.Command(append(flags, "--no-tag-output", "sh", "-c", "echo $HOROVOD_HOSTNAME $RANK of $WORLD_SIZE ${OMPI_MCA_orte_default_hostfile-scrubbed}")...)
	cmd.Env = append(cmd.Env, "K_MPI_JOB_ROLE=launcher", "OMPI_MCA_orte_keep_fqdn_hostnames=true", "OMPI_MCA_orte_default_hostfile=/etc/mpi/hostfile",
		"OMPI_MCA_plm_rsh_args=-o ConnectionAttempts=10", fmt.Sprintf("OMPI_MCA_orte_set_default_slots=%d", slots), "NVIDIA_VISIBLE_DEVICES=", "NVIDIA_DRIVER_CAPABILITIES=")
	before := e2etest.Logins(c.Host(1))
	must.Do(c.T, cmd.Start())
	c.resolve(0)
	c.Await("login on the first worker", func() bool { return e2etest.Logins(c.Host(1)) > before })
	up()
	if err := cmd.Wait(); err != nil {
		c.T.Fatalf("%v\n%s%s", err, stdout, stderr)
	}
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	slices.Sort(lines)
	var want []string
	for i, name := range c.workers {
		for slot := range slots {
			want = append(want, fmt.Sprintf("%s %d of %d scrubbed", name, i*slots+slot, len(c.workers)*slots))
		}
	}
	if !slices.Equal(lines, want) {
		c.T.Errorf("got %q, want %q\n%s", lines, want, stderr)
	}
	c.resolve()
	c.ExpectNothingLeft(5 * time.Second)
}

// TestOperator is an MPIJob in all that pods see of it: hostfile and discover_hosts.sh in /etc/mpi, the operator's
// variables, key and ssh configuration, and names that the cluster's DNS learns only after the launcher has started. By
// the hostfile, then elastic by the script, which names workers when they run, and no slots.
func TestOperator(t *testing.T) {
	const slots = 2
	c := newOperated(t, slots)
	flags := slices.DeleteFunc(slices.Clone(e2etest.Manifest(t).Spec.MPIReplicaSpecs["Launcher"].Template.Spec.Containers[0].Command), func(word string) bool {
		return !strings.HasPrefix(word, "-")
	})
	c.launch(slots, flags, func() { c.resolve(0, 1) })

	c.discover(0)
	c.launch(slots, append(flags, "--min-np", "4", "-np", "4", "--host-discovery-script", "/etc/mpi/discover_hosts.sh"), func() {
		c.discover(0, 1)
		c.resolve(0, 1)
	})
}

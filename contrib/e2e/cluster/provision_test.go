package cluster

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gorun/contrib/lab"
	"gorun/contrib/must"
)

// made returns a file or directory that make provision has made and that an environment variable names.
func made(t *testing.T, variable string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		t.Skip("a part of make provision: it needs a deb, and Ansible")
	}
	return path
}

// expectJob runs a job as alice, whose output names her.
func (m *machine) expectJob() {
	m.T.Helper()
	cmd, stdout, stderr := m.launch("--no-tag-output", "-np", "2", "id", "-un")
	if err := cmd.Wait(); err != nil || stdout.Count("alice\n") != 2 {
		m.T.Errorf("a job: %v\n%s\n%s", err, stderr, stdout)
	}
}

// overlay gives the machine a /usr and a /var of its own, in which packages may be installed, and what those need in /etc.
func (m *machine) overlay(etc ...string) {
	m.T.Helper()
	m.run("sh", "-euc", `
		mkdir /run/own
		mount -n -t tmpfs -o mode=755 own /run/own
		for dir in usr var; do
			mkdir -p /run/own/$dir/upper /run/own/$dir/work
			mount -n -t overlay -o lowerdir=/$dir,upperdir=/run/own/$dir/upper,workdir=/run/own/$dir/work own /$dir
		done
		: >/var/lib/dpkg/statoverride # which names groups of the packages that this machine has
		# The machine's systemd reads only this directory.
		ln -s /usr/lib/systemd/system/`+unitFile+` /etc/systemd/system`)
	pack := exec.CommandContext(m.T.Context(), "tar", slices.Concat([]string{"-C", "/", "-c", "--ignore-failed-read"}, etc)...)
	unpack := m.in("tar", "-C", "/", "-x")
	var err error
	if unpack.Stdin, err = pack.StdoutPipe(); err != nil {
		m.T.Fatal(err)
	}
	must.Do(m.T, pack.Start())
	if out, err := unpack.CombinedOutput(); err != nil {
		m.T.Fatalf("%v\n%s", err, out)
	}
	must.Do(m.T, pack.Wait())
}

// TestAnsible: the role installs a daemon that takes jobs, from the program and from the deb. Again it changes nothing;
// another version reloads the daemon, other options restart it.
func TestAnsible(t *testing.T) {
	venv, deb := made(t, "ANSIBLE"), made(t, "GORUN_DEB")
	home, err := exec.Command(filepath.Join(venv, "bin/python"), "-c", "import sys; print(sys.base_prefix)").Output()
	must.Do(t, err)
	options := lab.Options{Cgroups: true, Share: []string{venv}}
	if base := strings.TrimSpace(string(home)); base != "/usr" {
		options.Share = append(options.Share, base)
	}
	for name, source := range map[string]string{"program": "gorun_binary", "deb": "gorun_package"} {
		t.Run(name, func(t *testing.T) {
			m := bootMachine(t, options)
			file := deb
			if name == "deb" {
				m.overlay("etc/dpkg", "etc/apt", "etc/debian_version", "etc/os-release")
			} else {
				file = filepath.Join(m.Shared("ansible"), "gorun")
				must.Do(t, copyFile(file, m.Binary))
			}
			play := func(more ...string) string {
				t.Helper()
				vars, err := json.Marshal(map[string]any{"gorun_user": "alice", "gorun_cluster_key": clusterKey, source: file})
				must.Do(t, err)
				return m.run(slices.Concat([]string{filepath.Join(venv, "bin/ansible-playbook"), "--connection=local", "--inventory=host1,",
					"--extra-vars", string(vars), filepath.Join(m.Root, "contrib/ansible/cluster.yml")}, more)...)
			}
			if out := play("-e", "gorun_slots=3"); !strings.Contains(out, "failed=0") {
				t.Errorf("the first time:\n%s", out)
			}
			m.expectStatus("takes jobs at [::]:7575, 3 slots")
			m.expectJob()
			pid := m.show("MainPID")
			if out := play("-e", "gorun_slots=3"); !strings.Contains(out, " changed=0 ") {
				t.Errorf("the second time:\n%s", out)
			}
			if now := m.show("MainPID"); now != pid {
				t.Errorf("the daemon was %s and is %s, and nothing has changed", pid, now)
			}
			play("-e", "gorun_slots=2")
			m.expectStatus("takes jobs at [::]:7575, 2 slots")
			if name == "program" {
				pid = m.show("MainPID")
				m.changeProgram(file)
				play("-e", "gorun_slots=2")
				m.Await("reload", func() bool { return m.show("MainPID") != pid && m.show("ActiveState") == "active" })
				if journal := m.run("journalctl", "--no-pager", "-o", "cat", "-u", unit); !strings.Contains(journal, "leaves its jobs to the daemon that comes next") {
					t.Errorf("another program does not reload the daemon:\n%s", journal)
				}
			}
			m.expectJob()
			if out, err := m.in(filepath.Join(venv, "bin/ansible-playbook"), "--connection=local", "--inventory=host1,",
				filepath.Join(m.Root, "contrib/ansible/cluster.yml")).CombinedOutput(); err == nil || !strings.Contains(string(out), "Set gorun_user, ") {
				t.Errorf("without variables: %v\n%s", err, out)
			}
			m.run("systemctl", "stop", unit)
		})
	}
}

// changeProgram appends a byte to a program, which goes on to work.
func (m *machine) changeProgram(file string) {
	m.T.Helper()
	text := must.Read(m.T, file)
	must.Do(m.T, os.Remove(file))
	must.Do(m.T, os.WriteFile(file, append(text, 0), 0o755))
}

func (m *machine) expectStatus(want string) {
	m.T.Helper()
	if got := m.show("StatusText"); got != want {
		m.T.Errorf("the daemon says %q, want %q", got, want)
	}
}

// cloudConfig lets cloud-init do what the user data says, and nothing to disks, network and clock, which are the lab's.
const cloudConfig = `
datasource_list: [NoCloud]
network: {config: disabled}
users: [default]
cloud_init_modules: [write-files, users-groups]
cloud_config_modules: [runcmd]
cloud_final_modules: [write-files-deferred, scripts-user]
system_info:
  distro: debian
  default_user: {name: admin, lock_passwd: true}
`

// TestCloudInit: at the first boot cloud-init itself does what contrib/cloud-init/user-data says. The machine has a daemon
// then that takes jobs as alice; a second boot changes nothing.
func TestCloudInit(t *testing.T) {
	deb := made(t, "GORUN_DEB")
	text := must.Read(t, deb)
	m := bootMachine(t, lab.Options{Cgroups: true})
	m.overlay("etc/dpkg", "etc/login.defs", "etc/default", "etc/debian_version", "etc/os-release")
	m.run("sh", "-c", "rm -r /home/alice; sed -i /alice/d /etc/passwd /etc/group; : >/etc/shadow; mkdir -p /etc/cloud /etc/sudoers.d")

	user := must.Read(t, filepath.Join(m.Root, "contrib/cloud-init/user-data"))
	mine := string(user)
	for place, value := range map[string]string{"@gorun.example.com@": "host1", "@KEY@": clusterKey,
		"@https://example.com/gorun_V-1_amd64.deb@": "file://" + deb, "@SHA256@": fmt.Sprintf("%x", sha256.Sum256(text))} {
		if strings.Count(mine, place) != 1 {
			t.Errorf("user-data has %q not once", place)
		}
		mine = strings.ReplaceAll(mine, place, value)
	}
	if strings.Contains(mine, "@'") {
		t.Errorf("something is left to replace:\n%s", mine)
	}
	for path, text := range map[string]string{"/etc/cloud/cloud.cfg": cloudConfig, "/var/lib/cloud/seed/nocloud/user-data": mine,
		"/var/lib/cloud/seed/nocloud/meta-data": "instance-id: first\n"} {
		write := m.in("sh", "-euc", `mkdir -p "$(dirname "$0")"; cat >"$0"`, path)
		write.Stdin = strings.NewReader(text)
		if out, err := write.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	boot := func() {
		t.Helper()
		for _, stage := range []string{"init --local", "init", "modules --mode=config", "modules --mode=final"} {
			if out, err := m.in(slices.Concat([]string{"cloud-init"}, strings.Fields(stage))...).CombinedOutput(); err != nil {
				t.Fatalf("cloud-init %s: %v\n%s\n%s", stage, err, out, m.run("cat", "/var/log/cloud-init.log"))
			}
		}
	}
	boot()
	m.Await("daemon", func() bool { return m.show("ActiveState") == "active" })
	m.expectJob()
	if got := m.run("stat", "-c", "%a %U %G", "/etc/gorun/cluster.key"); got != "600 root root\n" {
		t.Errorf("the key belongs to: %s", got)
	}
	if got := m.run("cat", "/etc/gorun/worker.conf"); got != "GORUN_WORKER=--join dns:host1\n" {
		t.Errorf("worker.conf: %s", got)
	}
	if got := strings.TrimSpace(m.run("systemctl", "is-enabled", unit)); got != "enabled" {
		t.Errorf("at the next boot the daemon is %s", got)
	}
	pid := m.show("MainPID")
	boot()
	if now := m.show("MainPID"); now != pid {
		t.Errorf("a second boot replaces the daemon %s by %s", pid, now)
	}
	m.run("systemctl", "stop", unit)
}

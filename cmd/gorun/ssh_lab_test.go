//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"gorun/contrib/lab"
)

// sshCluster is a cluster with a directory that all hosts see, for keys and configurations.
type sshCluster struct {
	*cluster
	dir string
}

func newSSHCluster(t *testing.T, hosts int) *sshCluster {
	c := newCluster(t, hosts)
	return &sshCluster{c, c.shared("ssh")}
}

// write makes a file and returns its path.
func (c *sshCluster) write(name, text string, mode os.FileMode) string {
	c.t.Helper()
	path := filepath.Join(c.dir, name)
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// config makes an ssh_config that ends with what holds for all hosts.
func (c *sshCluster) config(name, text string) string {
	return c.write(name, text+"\nHost *\n User root\n IdentityFile ~/.ssh/id_ed25519\n StrictHostKeyChecking yes\n", 0o600)
}

// keygen runs ssh-keygen in the cluster's directory.
func (c *sshCluster) keygen(args ...string) {
	c.t.Helper()
	cmd := exec.Command("ssh-keygen", append([]string{"-q"}, args...)...)
	cmd.Dir = c.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		c.t.Fatalf("ssh-keygen %v: %v\n%s", args, err, out)
	}
}

// shell runs a command line on a host.
func (c *sshCluster) shell(h *lab.Host, line string) string {
	c.t.Helper()
	out, err := h.Exec(c.t.Context(), "sh", "-c", line)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

// setSSHD adds lines to the configuration of a host's sshd.
func (c *sshCluster) setSSHD(h *lab.Host, lines string) {
	c.t.Helper()
	listening := func() int { return strings.Count(h.Log(), "Server listening") }
	before := listening()
	file := c.write("sshd_config", lines, 0o600)
	c.shell(h, "cat "+file+" >>/run/lab/sshd_config && kill -HUP 1")
	c.await("sshd", func() bool { return listening() > before })
}

// logins counts those on a host.
func logins(h *lab.Host) int { return strings.Count(h.Log(), "Accepted publickey") }

// ranks runs two ranks on host2 and host3 and expects both to say their host's name.
func (c *sshCluster) ranks(args ...string) {
	c.t.Helper()
	r := c.gorun(append(args, "--no-tag-output", "-H", "host2,host3", "sh", "-c", "echo rank $RANK on $(uname -n)")...)
	if r.code != 0 || !strings.Contains(r.stdout, "rank 0 on host2\n") || !strings.Contains(r.stdout, "rank 1 on host3\n") {
		c.t.Errorf("gorun %v: exit code %d\n%s\n%s", args, r.code, r.stdout, r.stderr)
	}
}

// fails expects a launch to end with 255 and words for the user.
func (c *sshCluster) fails(want string, args ...string) {
	c.t.Helper()
	r := c.gorun(append(args, "-H", "host2,host3", "true")...)
	if r.code != 255 || !regexp.MustCompile(want).MatchString(r.stderr) {
		c.t.Errorf("gorun %v: exit code %d, want 255 and %s in\n%s", args, r.code, want, r.stderr)
	}
}

// TestIPv6 trains on hosts that are named by addresses with colons, in each of the forms that there are.
func TestIPv6(t *testing.T) {
	c := newSSHCluster(t, 2)
	for i, h := range append(c.Hosts(), c.Launcher()) {
		c.shell(h, fmt.Sprintf("ip address add fd77::%d/64 dev eth0 nodad", i+1))
	}
	config := c.config("six", "Host fd77::1\n HostKeyAlias host1\nHost fd77::2\n HostKeyAlias host2\n")
	for _, hosts := range []string{"[fd77::1]:1,[fd77::2]:1", "fd77::1,root@fd77::2"} {
		r := c.gorun("--ssh-config", config, "-np", "2", "-H", hosts, "--no-tag-output", python, "-c",
			"import numpy as np, gorun.numpy as hvd; hvd.init(); print(hvd.allreduce(np.ones(3), op=hvd.Sum, name='x')[0])")
		if r.code != 0 || strings.Count(r.stdout, "2.0\n") != 2 {
			t.Errorf("-H %s: exit code %d\n%s\n%s", hosts, r.code, r.stdout, r.stderr)
		}
	}
}

// TestKillLauncherWithPrograms kills -9 a launcher that has programs of the user's at work: a script that lists hosts and is
// just running, with children, a command that announces moves, a ProxyCommand and an ssh of the user's. None of them
// notices by itself, and nothing may be left of any.
func TestKillLauncherWithPrograms(t *testing.T) {
	c := newSSHCluster(t, 2)
	deaf := "; sleep 1000 & sleep 1000; true"
	for name, way := range map[string][]string{
		"ProxyCommand": {"--ssh-config", c.config("deaf", "Host host2\n ProxyCommand "+python+" "+c.write("relay.py", deafRelay, 0o600)+" %h 22\n")},
		"ssh-command":  {"--ssh-command", python + " " + c.write("ssh.py", deafSSH, 0o600) + " -F " + c.config("direct", "")},
	} {
		t.Run(name, func(t *testing.T) {
			second := filepath.Join(c.dir, name+"-second")
			script := c.write("hosts", "[ ! -e "+second+".1 ] || { touch "+second+deaf+"; }; touch "+second+".1; echo host2:2\n", 0o600)
			args := append(way, "--min-np", "2", "--no-tag-output", "--host-discovery-script", "sh "+script,
				"--moves", "touch "+second+".moves"+deaf, "sh", "-c", "echo up; exec sleep 1000")
			cmd, stdout, stderr := c.command(args...)
			watched := &watch{buf: stdout}
			cmd.Stdout = watched
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			c.await("ranks and programs", func() bool {
				_, script := os.Stat(second)
				_, moves := os.Stat(second + ".moves")
				return watched.count("up") == 2 && script == nil && moves == nil
			})
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			cmd.Wait()
			c.expectNothingLeft(20 * time.Second)
			if t.Failed() {
				t.Logf("it had said:\n%s", stderr)
			}
		})
	}
}

// deafRelay is a ProxyCommand that goes on when its input has ended and nobody reads its output; deafSSH is such an ssh.
const (
	deafRelay = `import os, socket, sys, threading, time
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
def up():
    while b := os.read(0, 65536):
        s.sendall(b)
threading.Thread(target=up, daemon=True).start()
try:
    while b := s.recv(65536):
        os.write(1, b)
except OSError:
    pass
time.sleep(1000)
`
	deafSSH = `import os, subprocess, sys, threading, time
ssh = subprocess.Popen(["ssh"] + sys.argv[1:], stdin=subprocess.PIPE)
def up():
    while b := os.read(0, 65536):
        ssh.stdin.write(b)
        ssh.stdin.flush()
    ssh.stdin.close()
threading.Thread(target=up, daemon=True).start()
ssh.wait()
time.sleep(1000)
`
)

// TestWaysOfSSH goes to hosts by everything that users have in their ssh_config, and real sshds.
func TestWaysOfSSH(t *testing.T) {
	c := newSSHCluster(t, 3)
	bastion := c.Host(1)
	direct := c.config("direct", "")

	// One connection to the bastion for all hosts behind it.
	before := logins(bastion)
	c.ranks("--ssh-config", c.config("jump", "Host host2 host3\n ProxyJump host1\n"))
	if n := logins(bastion) - before; n != 1 {
		t.Errorf("%d logins on the bastion for two hosts behind it, want 1", n)
	}
	if from := fmt.Sprintf("Accepted publickey for root from %s ", bastion.Address()); !strings.Contains(c.Host(2).Log(), from) {
		t.Errorf("nobody came through the bastion:\n%s", c.Host(2).Log())
	}
	c.fails(`(?m)^    host3 +resolve \(bastion nowhere\) +\S+`,
		"--ssh-config", c.config("nojump", "Host host2\n ProxyJump nobody@host1\nHost host3\n ProxyJump nowhere\n"))
	c.fails(`(?m)^gorun: error: host2: authenticate \(bastion nobody@host1\): nobody@host1: no key was accepted`,
		"--ssh-config", c.config("badjump", "Host host2\n ProxyJump nobody@host1\n"))

	c.ranks("--ssh-config", c.config("proxycommand", "Host host2\n ProxyCommand ssh -F "+direct+" -W %h:%p host1\n"))

	// The system's ssh, or whatever the user has.
	wrapper := c.write("myssh", "#!/bin/sh\necho called >>"+c.dir+"/calls\nexec ssh \"$@\"\n", 0o700)
	c.ranks("--ssh-command", wrapper+" -o BatchMode=yes", "--ssh-config", direct)
	if calls, err := os.ReadFile(filepath.Join(c.dir, "calls")); err != nil || strings.Count(string(calls), "called") != 2 {
		t.Errorf("--ssh-command was called %d times, want 2 (%v)", strings.Count(string(calls), "called"), err)
	}
	c.ranks("-mca", "plm_rsh_agent", "ssh : rsh")
	c.fails(`(?m)^    host[23]  authenticate  ssh: exit status 255: .*Permission denied`, "--ssh-command", "ssh -o BatchMode=yes", "--ssh-config", c.write("nokey", "Host *\n User root\n IdentityFile /dev/null\n", 0o600))

	// An sshd that takes connections and says nothing.
	sshd := c.Host(3).Processes()[0].PID
	if err := syscall.Kill(sshd, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(sshd, syscall.SIGCONT)
	c.fails(`(?m)^gorun: error: host3: handshake: host3:22: no answer within 2s$`, "--ssh-config", c.config("silent", "Host host3\n ConnectTimeout 2\n"))
}

// TestKeysOfSSH logs in, and knows hosts, by every kind of key.
func TestKeysOfSSH(t *testing.T) {
	c := newSSHCluster(t, 3)
	known := c.shell(c.Launcher(), "cat /root/.ssh/known_hosts")
	c.keygen("-t", "ed25519", "-N", "", "-f", "ca")
	c.keygen("-t", "ed25519", "-N", "", "-f", "me")
	c.keygen("-t", "ecdsa", "-N", "open sesame", "-f", "locked")

	// A known_hosts whose names are hashed; one that does not know host3.
	hashed := c.write("hashed", known, 0o600)
	c.keygen("-H", "-f", hashed)
	c.ranks("--ssh-config", c.config("hashed_config", "UserKnownHostsFile "+hashed+"\n"))
	some := c.write("some", regexp.MustCompile(`(?m)^host3.*\n`).ReplaceAllString(known, ""), 0o600)
	c.fails(`(?m)^gorun: error: host3: host key: `, "--ssh-config", c.config("some_config", "UserKnownHostsFile "+some+"\n"))

	// Nobody knows my key or the hosts', but an authority has signed all of them.
	mine := func(knownHosts string) string {
		return c.write("mine", "Host *\n User root\n IdentitiesOnly yes\n IdentityFile "+c.dir+"/me\n StrictHostKeyChecking yes\n UserKnownHostsFile "+knownHosts+"\n", 0o600)
	}
	public, err := os.ReadFile(filepath.Join(c.dir, "ca.pub"))
	if err != nil {
		t.Fatal(err)
	}
	authority := c.write("authority", "@cert-authority host* "+string(public), 0o600)
	c.fails(`(?m)^    host3 +authenticate +`, "--ssh-config", mine(c.write("known", known, 0o600)))
	c.keygen("-s", "ca", "-I", "me", "-n", "root", "me.pub")
	for _, h := range c.Hosts() {
		key := regexp.MustCompile(`(?m)^` + h.Name() + `,\S+ (.*)$`).FindStringSubmatch(known)
		if key == nil {
			t.Fatalf("%s is not in\n%s", h.Name(), known)
		}
		c.write(h.Name()+".pub", key[1]+"\n", 0o600)
		c.keygen("-s", "ca", "-h", "-I", h.Name(), "-n", h.Name(), h.Name()+".pub")
		c.setSSHD(h, fmt.Sprintf("TrustedUserCAKeys %s/ca.pub\nHostCertificate %s/%s-cert.pub\n", c.dir, c.dir, h.Name()))
	}
	c.ranks("--ssh-config", mine(authority))
	c.fails(`(?m)^    host2 +host key +`, "--ssh-config", mine(c.write("stranger", "@cert-authority host* "+known[strings.Index(known, "ssh-ed25519"):strings.Index(known, "\n")]+"\n", 0o600)))

	// A key with a passphrase: one question at the terminal for all hosts.
	for _, h := range c.Hosts()[1:] {
		c.shell(h, "cat "+c.dir+"/locked.pub >>/root/.ssh/authorized_keys")
	}
	term := newTerminal(t)
	locked := []string{"-i", filepath.Join(c.dir, "locked"), "--ssh-config", c.write("asked", "Host *\n User root\n IdentitiesOnly yes\n StrictHostKeyChecking yes\n", 0o600), "-np", "2", "-H", "host2,host3", "echo", "let in"}
	blind, _, stderr := c.command(locked...)
	blind.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := blind.Run(); err == nil || !strings.Contains(stderr.String(), "no terminal to ask at") {
		t.Errorf("without a terminal: %v\n%s", err, stderr)
	}
	cmd, _, _ := c.command(locked...)
	term.run(cmd.Cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	term.await(`(^|K)gorun: Enter passphrase for key `)
	term.types("open sesame\n")
	term.await(`(?s)let in.*let in`)
	if err := cmd.Wait(); err != nil || strings.Count(term.shows(), "passphrase") != 1 || strings.Contains(term.shows(), "readygorun:") || strings.Count(term.shows(), "let in") != 2 || strings.Contains(term.shows(), "sesame") {
		t.Errorf("%v; the terminal shows\n%q", err, term.shows())
	}
}

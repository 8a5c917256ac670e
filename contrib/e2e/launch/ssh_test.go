package launch

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

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
	"gorun/contrib/must"
)

// keygen runs ssh-keygen in the cluster's directory.
func keygen(c *e2etest.SSHCluster, args ...string) {
	c.T.Helper()
	cmd := exec.Command("ssh-keygen", append([]string{"-q"}, args...)...)
	cmd.Dir = c.Dir
	if out, err := cmd.CombinedOutput(); err != nil {
		c.T.Fatalf("ssh-keygen %v: %v\n%s", args, err, out)
	}
}

// setSSHD adds lines to the configuration of a host's sshd.
func setSSHD(c *e2etest.SSHCluster, h *lab.LabHost, lines string) {
	c.T.Helper()
	listening := func() int { return strings.Count(h.Log(), "Server listening") }
	before := listening()
	file := c.Write("sshd_config", lines, 0o600)
	c.Shell(h, "cat "+file+" >>/run/lab/sshd_config && kill -HUP 1")
	c.Await("sshd", func() bool { return listening() > before })
}

// ranks runs two ranks on host2 and host3 and expects both to print their host's name.
func ranks(c *e2etest.SSHCluster, args ...string) {
	c.T.Helper()
	r := c.Gorun(append(args, "--no-tag-output", "-H", "host2,host3", "sh", "-c", "echo rank $RANK on $(uname -n)")...)
	if r.Code != 0 || !strings.Contains(r.Stdout, "rank 0 on host2\n") || !strings.Contains(r.Stdout, "rank 1 on host3\n") {
		c.T.Errorf("gorun %v: exit code %d\n%s\n%s", args, r.Code, r.Stdout, r.Stderr)
	}
}

// fails expects a launch to end with 255 and words for the user.
func fails(c *e2etest.SSHCluster, want string, args ...string) {
	c.T.Helper()
	r := c.Gorun(append(args, "-H", "host2,host3", "true")...)
	if r.Code != 255 || !regexp.MustCompile(want).MatchString(r.Stderr) {
		c.T.Errorf("gorun %v: exit code %d, want 255 and %s in\n%s", args, r.Code, want, r.Stderr)
	}
}

// TestIPv6 trains on hosts that are named by addresses with colons, in each of the forms that there are.
func TestIPv6(t *testing.T) {
	c := e2etest.NewSSHCluster(t, 2)
	for i, h := range append(c.Hosts(), c.Launcher()) {
		c.Shell(h, fmt.Sprintf("ip address add fd77::%d/64 dev eth0 nodad", i+1))
	}
	config := c.Config("six", "Host fd77::1\n HostKeyAlias host1\nHost fd77::2\n HostKeyAlias host2\n")
	for _, hosts := range []string{"[fd77::1]:1,[fd77::2]:1", "fd77::1,root@fd77::2"} {
		r := c.Gorun("--ssh-config", config, "-np", "2", "-H", hosts, "--no-tag-output", e2etest.Python, "-c",
			"import numpy as np, gorun.numpy as hvd; hvd.init(); print(hvd.allreduce(np.ones(3), op=hvd.Sum, name='x')[0])")
		if r.Code != 0 || strings.Count(r.Stdout, "2.0\n") != 2 {
			t.Errorf("-H %s: exit code %d\n%s\n%s", hosts, r.Code, r.Stdout, r.Stderr)
		}
	}
}

// TestKillLauncherWithPrograms kills -9 a launcher that has programs of the user's at work: a script that lists hosts
// and is just running, with children, a command that announces moves, a ProxyCommand and an ssh of the user's. None of
// them notices by itself, and nothing may be left of any.
func TestKillLauncherWithPrograms(t *testing.T) {
	c := e2etest.NewSSHCluster(t, 2)
	deaf := "; sleep 1000 & sleep 1000; true"
	for name, way := range map[string][]string{
		"ProxyCommand": {"--ssh-config", c.Config("deaf", "Host host2\n ProxyCommand "+e2etest.Python+" "+c.Write("relay.py", e2etest.DeafRelay, 0o600)+" %h 22\n")},
		"ssh-command":  {"--ssh-command", e2etest.Python + " " + c.Write("ssh.py", deafSSH, 0o600) + " -F " + c.Config("direct", "")},
	} {
		t.Run(name, func(t *testing.T) {
			second := filepath.Join(c.Dir, name+"-second")
			script := c.Write("hosts", "[ ! -e "+second+".1 ] || { touch "+second+deaf+"; }; touch "+second+".1; echo host2:2\n", 0o600)
			args := append(way, "--min-np", "2", "--no-tag-output", "--host-discovery-script", "sh "+script,
				"--moves", "touch "+second+".moves"+deaf, "sh", "-c", "echo up; exec sleep 1000")
			cmd, stdout, stderr := c.Command(args...)
			must.Do(t, cmd.Start())
			c.Await("ranks and programs", func() bool {
				_, script := os.Stat(second)
				_, moves := os.Stat(second + ".moves")
				return stdout.Count("up") == 2 && script == nil && moves == nil
			})
			must.Do(t, cmd.Process.Kill())
			cmd.Wait()
			c.ExpectNothingLeft(20 * time.Second)
			if t.Failed() {
				t.Logf("it had said:\n%s", stderr)
			}
		})
	}
}

const deafSSH = `import os, subprocess, sys, threading, time
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

// TestWaysOfSSH goes to hosts by everything that users have in their ssh_config, and real sshds.
func TestWaysOfSSH(t *testing.T) {
	c := e2etest.NewSSHCluster(t, 3)
	bastion := c.Host(1)
	direct := c.Config("direct", "")

	// One connection to the bastion for all hosts behind it.
	before := e2etest.Logins(bastion)
	ranks(c, "--ssh-config", c.Config("jump", "Host host2 host3\n ProxyJump host1\n"))
	if n := e2etest.Logins(bastion) - before; n != 1 {
		t.Errorf("%d logins on the bastion for two hosts behind it, want 1", n)
	}
	if from := fmt.Sprintf("Accepted publickey for root from %s ", bastion.Address()); !strings.Contains(c.Host(2).Log(), from) {
		t.Errorf("nobody came through the bastion:\n%s", c.Host(2).Log())
	}
	fails(c, `(?m)^    host3 +resolve \(bastion nowhere\) +\S+`,
		"--ssh-config", c.Config("nojump", "Host host2\n ProxyJump nobody@host1\nHost host3\n ProxyJump nowhere\n"))
	fails(c, `(?m)^gorun: error: host2: authenticate \(bastion nobody@host1\): nobody@host1: no key was accepted`,
		"--ssh-config", c.Config("badjump", "Host host2\n ProxyJump nobody@host1\n"))

	// By the system's ssh, through the bastion too.
	ranks(c, "--ssh-config", c.Config("system", "Host host2\n VerifyHostKeyDNS yes\n ForwardAgent yes\n RequestTTY force\n ControlMaster auto\n ControlPath "+c.Dir+"/%C\n ControlPersist yes\n"))
	r := c.Gorun("-v", "--ssh-config", c.Config("systemjump", "Host host1\n VerifyHostKeyDNS yes\nHost host2 host3\n ProxyJump host1\n"), "-H", "host2,host3", "true")
	for _, host := range []string{"host2", "host3"} {
		if said := "gorun: " + host + ": this VerifyHostKeyDNS needs OpenSSH's client, which logs in\n"; r.Code != 0 || strings.Count(r.Stderr, said) != 1 {
			t.Errorf("exit code %d, want 0 and %q in\n%s", r.Code, said, r.Stderr)
		}
	}
	ranks(c, "--ssh-config", c.Config("proxycommand", "Host host2\n ProxyCommand ssh -F "+direct+" -W %h:%p host1\n"))

	// The system's ssh, or whatever the user has.
	wrapper := c.Write("myssh", "#!/bin/sh\necho called >>"+c.Dir+"/calls\nexec ssh \"$@\"\n", 0o700)
	ranks(c, "--ssh-command", wrapper+" -o BatchMode=yes", "--ssh-config", direct)
	if calls, err := os.ReadFile(filepath.Join(c.Dir, "calls")); err != nil || strings.Count(string(calls), "called") != 2 {
		t.Errorf("--ssh-command was called %d times, want 2 (%v)", strings.Count(string(calls), "called"), err)
	}
	ranks(c, "-mca", "plm_rsh_agent", "ssh : rsh")
	fails(c, `(?m)^    host[23]  authenticate  ssh: exit status 255: .*Permission denied`, "--ssh-command", "ssh -o BatchMode=yes", "--ssh-config", c.Write("nokey", "Host *\n User root\n IdentityFile /dev/null\n", 0o600))

	// An sshd that takes connections and sends nothing.
	sshd := c.Host(3).Processes()[0].PID
	must.Do(t, syscall.Kill(sshd, syscall.SIGSTOP))
	defer syscall.Kill(sshd, syscall.SIGCONT)
	fails(c, `(?m)^gorun: error: host3: handshake: host3:22: no answer within 2s$`, "--ssh-config", c.Config("silent", "Host host3\n ConnectTimeout 2\n"))
}

// TestHomeOfSSH: the files of ssh are in the home that passwd has, as for ssh, whatever HOME is.
func TestHomeOfSSH(t *testing.T) {
	c := e2etest.NewSSHCluster(t, 2)
	for want, config := range map[int]string{0: "", 255: "HostKeyAlgorithms ssh-ed25519-cert-v01@openssh.com\n"} {
		c.Shell(c.Launcher(), "cp -n ~/.ssh/config ~/.ssh/own; (echo '"+config+"'; cat ~/.ssh/own) >~/.ssh/config; mkdir -p /run/else/.ssh; echo Port 1 >/run/else/.ssh/config")
		for _, home := range []string{"/root/", "/run/else"} {
			cmd, _, said := c.Command("-H", "host2", "true")
			cmd.Env = append(cmd.Env, "HOME="+home)
			cmd.Run()
			if code := cmd.ProcessState.ExitCode(); code != want {
				t.Errorf("HOME=%s with %q: exit code %d, want %d\n%s", home, config, code, want, said)
			}
		}
	}
}

// TestKeysOfSSH logs in, and knows hosts, by every kind of key.
func TestKeysOfSSH(t *testing.T) {
	c := e2etest.NewSSHCluster(t, 3)
	known := c.Shell(c.Launcher(), "cat /root/.ssh/known_hosts")
	keygen(c, "-t", "ed25519", "-N", "", "-f", "ca")
	keygen(c, "-t", "ed25519", "-N", "", "-f", "me")
	keygen(c, "-t", "ecdsa", "-N", "open sesame", "-f", "locked")

	// A known_hosts whose names are hashed; one that does not know host3.
	hashed := c.Write("hashed", known, 0o600)
	keygen(c, "-H", "-f", hashed)
	ranks(c, "--ssh-config", c.Config("hashed_config", "UserKnownHostsFile "+hashed+"\n"))
	some := c.Write("some", regexp.MustCompile(`(?m)^host3.*\n`).ReplaceAllString(known, ""), 0o600)
	fails(c, `(?m)^gorun: error: host3: host key: `, "--ssh-config", c.Config("some_config", "UserKnownHostsFile "+some+"\n"))

	// No one knows my key or the hosts', but an authority has signed all of them.
	mine := func(knownHosts string) string {
		return c.Write("mine", "Host *\n User root\n IdentitiesOnly yes\n IdentityFile "+c.Dir+"/me\n StrictHostKeyChecking yes\n UserKnownHostsFile "+knownHosts+"\n", 0o600)
	}
	public := must.Read(t, filepath.Join(c.Dir, "ca.pub"))
	authority := c.Write("authority", "@cert-authority host* "+string(public), 0o600)
	fails(c, `(?m)^    host3 +authenticate +`, "--ssh-config", mine(c.Write("known", known, 0o600)))
	keygen(c, "-s", "ca", "-I", "me", "-n", "root", "me.pub")
	for _, h := range c.Hosts() {
		key := regexp.MustCompile(`(?m)^` + h.Name() + `,\S+ (.*)$`).FindStringSubmatch(known)
		if key == nil {
			t.Fatalf("%s is not in\n%s", h.Name(), known)
		}
		c.Write(h.Name()+".pub", key[1]+"\n", 0o600)
		keygen(c, "-s", "ca", "-h", "-I", h.Name(), "-n", h.Name(), h.Name()+".pub")
		setSSHD(c, h, fmt.Sprintf("TrustedUserCAKeys %s/ca.pub\nHostCertificate %s/%s-cert.pub\n", c.Dir, c.Dir, h.Name()))
	}
	ranks(c, "--ssh-config", mine(authority))
	fails(c, `(?m)^    host2 +host key +`, "--ssh-config", mine(c.Write("stranger", "@cert-authority host* "+known[strings.Index(known, "ssh-ed25519"):strings.Index(known, "\n")]+"\n", 0o600)))

	// A key with a passphrase: one question at the terminal for all hosts.
	for _, h := range c.Hosts()[1:] {
		c.Shell(h, "cat "+c.Dir+"/locked.pub >>/root/.ssh/authorized_keys")
	}
	term := e2etest.NewTerminal(t)
	locked := []string{"-i", filepath.Join(c.Dir, "locked"), "--ssh-config", c.Write("asked", "Host *\n User root\n IdentitiesOnly yes\n StrictHostKeyChecking yes\n", 0o600), "-np", "2", "-H", "host2,host3", "echo", "let in"}
	blind, _, stderr := c.Command(locked...)
	blind.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := blind.Run(); err == nil || !strings.Contains(stderr.String(), "no terminal to ask at") {
		t.Errorf("without a terminal: %v\n%s", err, stderr)
	}
	cmd, _, _ := c.Command(locked...)
	term.Run(cmd.Cmd)
	must.Do(t, cmd.Start())
	term.Await(`(^|K)gorun: Enter passphrase for key `)
	term.Types("open sesame\n")
	term.Await(`(?s)let in.*let in`)
	if err := cmd.Wait(); err != nil || strings.Count(term.Shows(), "passphrase") != 1 || strings.Contains(term.Shows(), "readygorun:") || strings.Count(term.Shows(), "let in") != 2 || strings.Contains(term.Shows(), "sesame") {
		t.Errorf("%v; the terminal shows\n%q", err, term.Shows())
	}
}

//go:build linux

package vm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Check returns an error that explains why virtual machines are impossible here, or nil.
func Check() error {
	if os.Geteuid() != 0 {
		return errors.New("virtual machines need root")
	}
	for _, tool := range []string{"qemu-system-x86_64", "busybox", "depmod", "mke2fs", "dpkg", "apt-get", "nsenter", "ip", "ssh-keygen"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("virtual machines need %s: apt-get install qemu-system-x86 busybox-static kmod e2fsprogs util-linux iproute2 openssh-client", tool)
		}
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return errors.New("virtual machines need /dev/net/tun")
	}
	return nil
}

// Options of a lab.
type Options struct {
	Cache  string // directory for the kernel and the image, which are kept
	Guests int
	Memory int // MiB of a guest; 512 if 0

	Packages []string // installed ones that guests have, besides those of all guests
}

// Lab is some guests, and the network they share with programs of this machine.
type Lab struct {
	opts   Options
	dir    string // of this lab alone
	image  image
	net    *exec.Cmd // holds the network namespace
	guests []*Guest
}

// Guest is one virtual machine, in whichever hypervisor process it runs.
type Guest struct {
	lab    *Lab
	number int // from 1
	moves  int
	host   *hypervisor
}

// New makes the guests and waits until their sshd answer.
func New(ctx context.Context, opts Options) (_ *Lab, err error) {
	if err := Check(); err != nil {
		return nil, err
	}
	if opts.Memory == 0 {
		opts.Memory = 512
	}
	l := &Lab{opts: opts}
	defer func() {
		if err != nil {
			l.Close()
		}
	}()
	if err := os.MkdirAll(opts.Cache, 0o755); err != nil {
		return nil, fmt.Errorf("make cache: %w", err)
	}
	if l.dir, err = os.MkdirTemp("", "gorun-vm"); err != nil {
		return nil, fmt.Errorf("make lab: %w", err)
	}
	files, err := l.makeKeys(ctx)
	if err != nil {
		return nil, err
	}
	if l.image, err = makeImage(ctx, opts.Cache, files, slices.Concat(packages, opts.Packages)); err != nil {
		return nil, err
	}
	if err := l.makeNetwork(ctx); err != nil {
		return nil, err
	}
	for n := range opts.Guests {
		g := &Guest{lab: l, number: n + 1}
		l.guests = append(l.guests, g)
		if g.host, err = l.boot(ctx, g, ""); err != nil {
			return nil, err
		}
	}
	for _, g := range l.guests {
		if err := g.up(ctx); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// A guest that has not answered for bootLimit hangs, and boots again, up to mostBoots times in all. The kernel puts a
// breakpoint into code that it patches, and QEMU 7.2's emulation may execute it for ever after the kernel has removed
// it.
const (
	bootLimit = 2 * time.Minute
	mostBoots = 3
)

// up waits until a guest's sshd answers.
func (g *Guest) up(ctx context.Context) error {
	for boots := 1; ; boots++ {
		limited, cancel := context.WithTimeout(ctx, bootLimit)
		err := g.await(limited)
		hangs := limited.Err() != nil && ctx.Err() == nil
		cancel()
		if err == nil || !hangs || boots == mostBoots {
			return err
		}
		g.host.kill()
		g.moves++ // so that it has other files and NICs
		if g.host, err = g.lab.boot(ctx, g, ""); err != nil {
			return err
		}
	}
}

// Guests returns the guests; the first has the number 1.
func (l *Lab) Guests() []*Guest { return l.guests }

// Name is the host name of a guest, which ssh and gorun know.
func (g *Guest) Name() string { return fmt.Sprintf("vm%d", g.number) }

// makeKeys makes the home of programs on the launcher's side, and returns the keys for the guests.
func (l *Lab) makeKeys(ctx context.Context) (map[string][]byte, error) {
	dir := filepath.Join(l.dir, ".ssh")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make keys: %w", err)
	}
	for _, name := range []string{"id_ed25519", "host_key"} {
		if err := run(ctx, dir, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", name); err != nil {
			return nil, err
		}
	}
	files := map[string][]byte{}
	for name, file := range map[string]string{"authorized_keys": "id_ed25519.pub", "host_key": "host_key", "host.pub": "host_key.pub"} {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return nil, fmt.Errorf("read key: %w", err)
		}
		files[name] = b
	}
	var known, config, hosts strings.Builder
	fmt.Fprintln(&hosts, "127.0.0.1 localhost")
	key := strings.Join(strings.Fields(string(files["host.pub"]))[:2], " ")
	for n := 1; n <= l.opts.Guests; n++ {
		fmt.Fprintf(&known, "vm%d,10.77.0.%d %s\n", n, n, key)
		fmt.Fprintf(&config, "Host vm%d\n  HostName 10.77.0.%d\n  HostKeyAlias vm%d\n  User root\n  ConnectTimeout 60\n", n, n, n)
		fmt.Fprintf(&hosts, "10.77.0.%d vm%d\n10.78.0.%d vm%d-b\n", n, n, n, n)
	}
	files["hosts"] = []byte(hosts.String())
	delete(files, "host.pub")
	fmt.Fprintf(&config, "Host *\n  IdentityFile %s/id_ed25519\n  UserKnownHostsFile %[1]s/known_hosts\n", dir)
	program, err := exec.LookPath("ssh")
	if err != nil {
		return nil, err
	}
	// ssh takes the user's home from passwd, whatever HOME is. gorun reads what ssh reads.
	wrapper := fmt.Sprintf("#!/bin/sh\nexec %s -F %s/config \"$@\"\n", program, dir)
	return files, errors.Join(os.WriteFile(filepath.Join(dir, "known_hosts"), []byte(known.String()), 0o600),
		os.WriteFile(filepath.Join(dir, "config"), []byte(config.String()), 0o600), os.WriteFile(filepath.Join(dir, "ssh"), []byte(wrapper), 0o700))
}

// makeNetwork makes a network namespace that lives as long as its first process.
func (l *Lab) makeNetwork(ctx context.Context) error {
	l.net = exec.Command("unshare", "-n", "sleep", "infinity")
	l.net.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := l.net.Start(); err != nil {
		return fmt.Errorf("make network: %w", err)
	}
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return fmt.Errorf("make network: %w", err)
	}
	for { // until unshare has become sleep in its own namespace
		ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", l.net.Process.Pid))
		if err == nil && ns != own {
			break
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("make network: %w", err)
		}
	}
	commands := []string{"link set lo up"}
	for b := range 2 {
		commands = append(commands, fmt.Sprintf("link add br%d type bridge", b), fmt.Sprintf("link set br%d up", b), fmt.Sprintf("addr add 10.%d.0.254/24 dev br%d", 77+b, b))
	}
	return l.ip(ctx, commands...)
}

// ip runs ip(8) in the lab's network.
func (l *Lab) ip(ctx context.Context, commands ...string) error {
	for _, c := range commands {
		if err := run(ctx, "", "nsenter", slices.Concat(l.enter(), []string{"ip"}, strings.Fields(c))...); err != nil {
			return fmt.Errorf("ip %s: %w", c, err)
		}
	}
	return nil
}

func (l *Lab) enter() []string { return []string{"-t", strconv.Itoa(l.net.Process.Pid), "-n", "--"} }

// Command prepares a program of this machine in the lab's network, where ssh knows the guests.
func (l *Lab) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", slices.Concat(l.enter(), []string{name}, args)...)
	cmd.Env = append(os.Environ(), "HOME="+l.dir, "PATH="+filepath.Join(l.dir, ".ssh")+":"+os.Getenv("PATH"), "SSH_AUTH_SOCK=")
	return cmd
}

// Run runs a command on a guest by ssh and returns what it prints.
func (g *Guest) Run(ctx context.Context, command string) (string, error) {
	cmd := g.lab.Command(ctx, "ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=20", g.Name(), command)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("run %q on %s: %w: %s", command, g.Name(), err, errs.String())
	}
	return out.String(), nil
}

// SoftRoCE gives the guest a device for RDMA, rxe0, in software over its first NIC.
func (g *Guest) SoftRoCE(ctx context.Context) error {
	_, err := g.Run(ctx, "for m in $(cat /run/guest/modules/third); do insmod /run/guest/modules/$m; done; "+
		"mkdir -p /dev/infiniband && rdma link add rxe0 type rxe netdev ens192 && ls /dev/infiniband/uverbs0")
	return err
}

// await waits until a guest's sshd answers.
func (g *Guest) await(ctx context.Context) error {
	for {
		_, err := g.Run(ctx, "true")
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("boot %s: %w: %s", g.Name(), err, g.host.lastOutput())
		}
		select {
		case <-g.host.ended:
			return fmt.Errorf("boot %s: the hypervisor ended: %s", g.Name(), g.host.lastOutput())
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// Close ends the guests and removes the lab.
func (l *Lab) Close() error {
	for _, g := range l.guests {
		if g.host != nil {
			g.host.kill()
		}
	}
	if l.net != nil && l.net.Process != nil {
		l.net.Process.Kill()
		l.net.Wait()
	}
	return os.RemoveAll(l.dir)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

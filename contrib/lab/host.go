//go:build linux

package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// pollInterval is the time between two checks of state that the kernel does not report.
const pollInterval = 5 * time.Millisecond

// LabHost is one host of a lab. Its methods may be called from several goroutines.
type LabHost struct {
	lab     *Lab
	name    string
	port    string // its port of the bridge
	card    string // the address of its network card, which is the same after a reboot
	address netip.Addr
	key     key

	mu    sync.Mutex
	pid   int           // of the first process; 0 before the first boot
	ended chan struct{} // closed when the first process is gone; nil if another process owns the lab
}

// Name is the host's name, which all hosts of the lab can resolve.
func (h *LabHost) Name() string { return h.name }

// Address is the host's address in the lab.
func (h *LabHost) Address() netip.Addr { return h.address }

// Boot starts the host, with an empty home, and waits until its sshd listens. New has done so; Boot is for
// a host that was killed.
func (h *LabHost) Boot(ctx context.Context) error {
	if err := h.boot(ctx); err != nil {
		return fmt.Errorf("boot %s: %w", h.name, err)
	}
	return nil
}

func (h *LabHost) boot(ctx context.Context) error {
	if h.lab.rack == nil {
		return errors.New("the lab belongs to another process")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.isOn() {
		return errors.New("it is on")
	}
	if err := h.writeFiles(); err != nil {
		return err
	}
	// The kernel removes the network card of a host that was killed some time later.
	h.lab.ip(h.lab.rackPID, "link delete "+h.port)
	sshd, err := findTool("sshd")
	if err != nil {
		return err
	}
	root := "ro"
	if h.name == launcherName {
		root = "rw" // it stands for the machine of the user
	}
	log, err := os.OpenFile(h.file("log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	stdin, hold, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	defer hold.Close()

	// Only a process in the rack's pid namespace can create one inside it, so unshare(1) runs there.
	// It is the parent of the host's first process, and one cannot be without the other.
	unshare, err := findTool("unshare")
	if err != nil {
		return err
	}
	prefix := netip.PrefixFrom(h.address, network.Bits()).String()
	cmd := exec.Command(unshare, append([]string{"--pid", "--fork", "--kill-child", "--net", "--mount", "--uts", "--ipc", "--",
		"/bin/sh", "-c", hostScript, "gorun-lab-" + h.name, h.name, prefix, root, sshd}, h.lab.share...)...)
	cmd.Env = []string{"PATH=" + searchPath, "CGROUPS=" + h.lab.cgroups, "CLASS=" + h.lab.class}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := enter(h.lab.rackPID, unix.CLONE_NEWPID|unix.CLONE_NEWNS, cmd.Start); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		cmd.Wait() // how it ended does not matter: it is killed
		close(ended)
	}()
	h.pid, h.ended = 0, ended
	if h.pid, err = onlyChild(ctx, cmd.Process.Pid); err != nil {
		return err
	}

	// Plug in the network card, then let the script continue.
	if err := h.lab.ip(h.lab.rackPID,
		fmt.Sprintf("link add %s type veth peer name eth0 address %s netns %d", h.port, h.card, h.pid),
		fmt.Sprintf("link set %s master lab0 up", h.port)); err != nil {
		return err
	}
	if _, err := hold.WriteString("go\n"); err != nil {
		return err
	}
	return h.awaitSSH(ctx)
}

// onlyChild waits for a process to have a child.
func onlyChild(ctx context.Context, parent int) (int, error) {
	for {
		entries, err := os.ReadDir("/proc")
		if err != nil {
			return 0, err
		}
		for _, e := range entries {
			pid, err := strconv.Atoi(e.Name())
			if err != nil {
				continue
			}
			if p, ok := readProcess(pid); ok && p.Parent == parent {
				return pid, nil
			}
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("wait for its first process: %w", ctx.Err())
		case <-time.After(pollInterval):
		}
	}
}

// awaitSSH waits until something listens on the ssh port of the host.
func (h *LabHost) awaitSSH(ctx context.Context) error {
	for {
		for _, s := range listeningTCP(h.pid) {
			if s.port == sshPort {
				return nil
			}
		}
		select {
		case <-h.ended:
			return fmt.Errorf("its first process ended: %s", lastLine(h.Log()))
		case <-ctx.Done():
			return fmt.Errorf("wait for sshd: %w: %s", ctx.Err(), lastLine(h.Log()))
		case <-time.After(pollInterval):
		}
	}
}

// file is the path, seen from outside, of one of the host's files in the lab's directory.
func (h *LabHost) file(name string) string { return filepath.Join(h.lab.dir, "host", h.name, name) }

// writeFiles writes the host's files in /run/lab.
func (h *LabHost) writeFiles() error {
	shadow, err := os.ReadFile("/etc/shadow")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	files := map[string]string{
		"hostname":            h.name + "\n",
		"shadow":              unlockedRoot(shadow),
		"host_key":            string(h.key.private),
		"ssh/authorized_keys": string(h.lab.identity.public),
		"sshd_config": `# written by the lab
HostKey /run/lab/host_key
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
UseDNS no
MaxStartups 200
MaxSessions 200
PidFile none
PrintMotd no
SetEnv GORUN_ALLOW_ROOT=1
Subsystem sftp internal-sftp
`,
	}
	if h.name == launcherName {
		files["ssh/id_ed25519"] = string(h.lab.identity.private)
		files["ssh/id_ed25519.pub"] = string(h.lab.identity.public)
		files["ssh/config"] = "Host *\n\tUser root\n\tIdentityFile ~/.ssh/id_ed25519\n\tStrictHostKeyChecking yes\n"
		for _, other := range h.lab.hosts {
			files["ssh/known_hosts"] += fmt.Sprintf("%s,%s %s", other.name, other.address, other.key.public)
		}
	}
	if err := os.MkdirAll(h.file("run"), 0o700); err != nil {
		return err
	}
	for name, text := range files {
		path := h.file(name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			return err
		}
	}
	return os.Chmod(h.file("hostname"), 0o644)
}

// unlockedRoot returns the shadow file with an account for root that sshd does not take for locked, as it is on many
// machines. Still no password fits it.
func unlockedRoot(shadow []byte) string {
	lines := bytes.Split(shadow, []byte("\n"))
	for i, line := range lines {
		if bytes.HasPrefix(line, []byte("root:")) {
			lines[i] = []byte("root:*:19000:0:99999:7:::")
		}
	}
	return string(bytes.Join(lines, []byte("\n")))
}

// Log returns the log of the host's sshd.
func (h *LabHost) Log() string {
	text, err := os.ReadFile(h.file("log"))
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// Running reports whether the host is on.
func (h *LabHost) Running() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.isOn()
}

// isOn needs the lock.
func (h *LabHost) isOn() bool {
	if h.pid == 0 {
		return false
	}
	if h.ended == nil { // owned by another process
		return unix.Kill(h.pid, 0) == nil
	}
	select {
	case <-h.ended:
		return false
	default:
		return true
	}
}

// runningPID is the number of the host's first process.
func (h *LabHost) runningPID() (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.isOn() {
		return 0, fmt.Errorf("%s is off", h.name)
	}
	return h.pid, nil
}

// Kill kills the first process of the host, and with it all others. The kernel closes its connections, as for every
// process that ends, so peers notice. PowerOff ends a host silently.
func (h *LabHost) Kill() error {
	pid, err := h.runningPID()
	if err != nil {
		return fmt.Errorf("kill: %w", err)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		return fmt.Errorf("kill %s: %w", h.name, err)
	}
	return h.wait()
}

// PowerOff ends the host silently: it is cut off first.
func (h *LabHost) PowerOff() error {
	if err := h.Cut(); err != nil {
		return err
	}
	return h.Kill()
}

// wait waits until the host is gone.
func (h *LabHost) wait() error {
	for deadline := time.Now().Add(endLimit); ; time.Sleep(pollInterval) {
		switch {
		case !h.Running():
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%s does not end; a command on it that nobody waits for keeps it", h.name)
		}
	}
}

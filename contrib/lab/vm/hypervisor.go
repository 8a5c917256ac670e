//go:build linux

package vm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// hypervisor is one QEMU process: a guest has another one after each move.
type hypervisor struct {
	dir   string
	cmd   *exec.Cmd
	ended chan struct{}
}

// boot starts a process for a guest; incoming is the source of its memory, "" to boot.
func (l *Lab) boot(ctx context.Context, g *Guest, incoming string) (*hypervisor, error) {
	id := fmt.Sprintf("%d%c", g.number, 'a'+g.moves%26)
	h := &hypervisor{dir: filepath.Join(l.dir, "vm"+id), ended: make(chan struct{})}
	if err := os.MkdirAll(h.dir, 0o700); err != nil {
		return nil, fmt.Errorf("boot %s: %w", g.Name(), err)
	}
	half := strconv.Itoa(l.opts.Memory/2) + "M"
	args := []string{"qemu-system-x86_64", "-name", g.Name(), "-accel", "tcg,thread=multi,tb-size=256", "-cpu", "max,-hypervisor",
		"-machine", "q35,vmport=on", "-m", strconv.Itoa(l.opts.Memory), "-smp", "2,sockets=2", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-smbios", fmt.Sprintf("type=1,manufacturer=VMware,, Inc.,product=VMware Virtual Platform,serial=VMware-56 4d 00 00 00 00 00 0%d", g.number)}
	for node := range 2 {
		args = append(args,
			"-object", fmt.Sprintf("memory-backend-ram,id=m%d,size=%s", node, half),
			"-numa", fmt.Sprintf("node,nodeid=%d,cpus=%d,memdev=m%d", node, node, node),
			"-device", fmt.Sprintf("pxb-pcie,id=pxb%d,bus_nr=%d,numa_node=%d,bus=pcie.0", node, 64*(node+1), node),
			"-device", fmt.Sprintf("pcie-root-port,id=rp%d,bus=pxb%d,chassis=%d", node, node, node+1))
	}
	for node := range 2 {
		tap := fmt.Sprintf("t%s%d", id, node)
		if err := l.ip(ctx, "tuntap add "+tap+" mode tap", fmt.Sprintf("link set %s master br%d", tap, node), "link set "+tap+" up"); err != nil {
			return nil, err
		}
		args = append(args, "-netdev", fmt.Sprintf("tap,id=n%d,ifname=%s,script=no,downscript=no", node, tap),
			"-device", fmt.Sprintf("vmxnet3,netdev=n%d,bus=rp%d,mac=00:50:56:00:0%d:0%d,romfile=", node, node, node, g.number))
	}
	args = append(args,
		"-drive", "if=none,id=root,file="+l.image.root+",format=raw,readonly=on,file.locking=off", "-device", "virtio-blk-pci,drive=root,bus=pcie.0",
		"-device", "virtio-rng-pci,bus=pcie.0", "-kernel", l.image.kernel, "-initrd", l.image.ramdisk,
		"-append", fmt.Sprintf("console=ttyS0 quiet mitigations=off nokaslr random.trust_cpu=on panic=-1 guest.number=%d%s", g.number, clockFrequency()),
		"-serial", "file:"+filepath.Join(h.dir, "console"), "-qmp", "unix:"+filepath.Join(h.dir, "qmp")+",server=on,wait=off")
	if incoming != "" {
		args = append(args, "-incoming", incoming)
	}
	h.cmd = exec.Command("nsenter", slices.Concat(l.enter(), args)...)
	h.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	log, err := os.Create(filepath.Join(h.dir, "log"))
	if err != nil {
		return nil, fmt.Errorf("boot %s: %w", g.Name(), err)
	}
	defer log.Close()
	h.cmd.Stdout, h.cmd.Stderr = log, log
	if err := h.cmd.Start(); err != nil {
		return nil, fmt.Errorf("boot %s: %w", g.Name(), err)
	}
	go func() {
		h.cmd.Wait()
		close(h.ended)
	}()
	return h, nil
}

// clockFrequency returns the kernel's parameter for the frequency of the CPU's time stamp counter, which guests under
// emulation share with this machine. A guest that measures it while others use the CPUs may find a third of it: all its
// clocks then run three times too fast, and what waits for it seems to be late.
func clockFrequency() string {
	if runtime.GOARCH != "amd64" {
		return ""
	}
	var profile bytes.Buffer
	if err := pprof.Lookup("mutex").WriteTo(&profile, 1); err != nil { // its header has the frequency
		return ""
	}
	_, rest, _ := strings.Cut(profile.String(), "cycles/second=")
	line, _, _ := strings.Cut(rest, "\n")
	hertz, err := strconv.ParseInt(line, 10, 64)
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" tsc_early_khz=%d", hertz/1000)
}

// kill ends the process and waits for it.
func (h *hypervisor) kill() {
	h.cmd.Process.Kill()
	<-h.ended
}

// LastOutput returns the last output of a guest's console and its hypervisor, for a test that failed.
func (g *Guest) LastOutput() string { return g.host.lastOutput() }

// lastOutput returns the last output of the process and the guest's console.
func (h *hypervisor) lastOutput() string {
	var out []string
	for _, name := range []string{"log", "console"} {
		b, _ := os.ReadFile(filepath.Join(h.dir, name))
		lines := strings.Split(strings.TrimSpace(string(b)), "\n")
		out = append(out, lines[max(0, len(lines)-10):]...)
	}
	return strings.Join(out, "\n")
}

// monitor is a connection to a process's QMP socket (QEMU Machine Protocol).
type monitor struct {
	net.Conn
	r *bufio.Reader
}

func (h *hypervisor) monitor(ctx context.Context) (*monitor, error) {
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", filepath.Join(h.dir, "qmp"))
		if err != nil {
			if sleep(ctx, 20*time.Millisecond) != nil {
				return nil, fmt.Errorf("reach hypervisor: %w", err)
			}
			continue
		}
		conn.SetDeadline(time.Now().Add(2 * time.Minute))
		m := &monitor{conn, bufio.NewReader(conn)}
		if _, err := m.r.ReadString('\n'); err != nil { // the greeting
			conn.Close()
			return nil, fmt.Errorf("reach hypervisor: %w", err)
		}
		if _, err := m.do("qmp_capabilities", nil); err != nil {
			conn.Close()
			return nil, err
		}
		return m, nil
	}
}

// do runs a command and returns its result.
func (m *monitor) do(name string, arguments any) (json.RawMessage, error) {
	request := map[string]any{"execute": name}
	if arguments != nil {
		request["arguments"] = arguments
	}
	if err := json.NewEncoder(m).Encode(request); err != nil {
		return nil, fmt.Errorf("ask hypervisor to %s: %w", name, err)
	}
	for {
		line, err := m.r.ReadBytes('\n')
		if err != nil {
			return nil, fmt.Errorf("ask hypervisor to %s: %w", name, err)
		}
		var reply struct {
			Event  string          `json:"event"`
			Return json.RawMessage `json:"return"`
			Error  *struct {
				Desc string `json:"desc"`
			} `json:"error"`
		}
		if err := json.Unmarshal(line, &reply); err != nil {
			return nil, fmt.Errorf("ask hypervisor to %s: %w", name, err)
		}
		switch {
		case reply.Event != "":
		case reply.Error != nil:
			return nil, fmt.Errorf("ask hypervisor to %s: %s", name, reply.Error.Desc)
		default:
			return reply.Return, nil
		}
	}
}

// Move moves a guest to another hypervisor process; stun is how much longer than necessary it is paused.
// It returns how long the guest did not run.
func (g *Guest) Move(ctx context.Context, stun time.Duration) (time.Duration, error) {
	l := g.lab
	g.moves++
	from, way := g.host, "unix:"+filepath.Join(l.dir, fmt.Sprintf("move%d", g.number))
	os.Remove(strings.TrimPrefix(way, "unix:"))
	to, err := l.boot(ctx, g, way)
	if err != nil {
		return 0, err
	}
	moved := false
	defer func() {
		if !moved {
			to.kill()
		}
	}()
	target, err := to.monitor(ctx)
	if err != nil {
		return 0, fmt.Errorf("move %s: %w: %s", g.Name(), err, to.lastOutput())
	}
	defer target.Close()
	source, err := from.monitor(ctx)
	if err != nil {
		return 0, fmt.Errorf("move %s: %w", g.Name(), err)
	}
	defer source.Close()
	if _, err := source.do("stop", nil); err != nil {
		return 0, err
	}
	stopped := time.Now()
	if err := sleep(ctx, stun); err != nil {
		return 0, fmt.Errorf("move %s: %w", g.Name(), err)
	}
	if _, err := source.do("migrate", map[string]string{"uri": way}); err != nil {
		return 0, err
	}
	if err := source.await(ctx, "query-migrate", "", "setup", "active", "pre-switchover", "device"); err != nil {
		return 0, fmt.Errorf("move %s: %w: %s", g.Name(), err, to.lastOutput())
	}
	// The source is done when everything is sent. A target that has not read everything yet would only note "cont", and
	// then stop as the source did.
	if err := target.await(ctx, "query-status", "inmigrate"); err != nil {
		return 0, fmt.Errorf("move %s: %w: %s", g.Name(), err, to.lastOutput())
	}
	if _, err := target.do("cont", nil); err != nil {
		return 0, err
	}
	moved = true
	g.host = to
	from.kill()
	return time.Since(stopped), nil
}

// await polls until the status is none of these any more, and fails if the guest did.
func (m *monitor) await(ctx context.Context, query string, under ...string) error {
	for {
		raw, err := m.do(query, nil)
		if err != nil {
			return err
		}
		var info struct {
			Status string `json:"status"`
		}
		if err := json.Unmarshal(raw, &info); err != nil {
			return fmt.Errorf("read state of the move: %w", err)
		}
		switch {
		case info.Status == "failed" || info.Status == "cancelled":
			return errors.New("the move " + info.Status)
		case !slices.Contains(under, info.Status):
			return nil
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

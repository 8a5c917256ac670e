//go:build linux

package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"golang.org/x/sys/unix"
)

// network has the addresses of the pods; the first one is the node's.
var network = netip.MustParsePrefix("10.78.0.0/24")

const searchPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

//go:embed node.sh
var nodeScript string

// node is the namespaces that hold all pods.
type node struct {
	name     string
	address  netip.Addr
	pid      int      // of its first process
	hold     *os.File // the node lives as long as this pipe
	ended    chan struct{}
	imageDir map[string]string // of each image, as the node sees it
	port     int               // where the API server asks for logs

	mu    sync.Mutex
	taken map[netip.Addr]bool
	next  netip.Addr
}

func newNode(name string, images images) (*node, error) {
	n := &node{name: name, address: network.Addr().Next(), ended: make(chan struct{}), imageDir: map[string]string{}, taken: map[netip.Addr]bool{}}
	n.next = n.address.Next()
	args := []string{"-c", nodeScript, "gorun-kubelet", netip.PrefixFrom(n.address, network.Bits()).String()}
	for i, image := range slices.Sorted(maps.Keys(images)) {
		dir, err := filepath.Abs(images[image])
		if err != nil {
			return nil, err
		}
		args = append(args, dir)
		n.imageDir[image] = fmt.Sprintf("/run/kubelet/images/%d", i)
	}
	stdin, hold, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	ready, said, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer ready.Close()
	cmd := exec.Command("/bin/sh", args...)
	cmd.Env = []string{"PATH=" + searchPath}
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, said, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWIPC, Setsid: true}
	err = cmd.Start()
	said.Close()
	if err != nil {
		return nil, errors.Join(err, hold.Close())
	}
	go func() { cmd.Wait(); close(n.ended) }()
	n.pid, n.hold = cmd.Process.Pid, hold
	ready.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := ready.Read(make([]byte, 16)); err != nil {
		n.close()
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return n, nil
}

// close ends all pods.
func (n *node) close() {
	n.hold.Close()
	select {
	case <-n.ended: // its number may belong to another process by now
	default:
		unix.Kill(n.pid, unix.SIGKILL)
		<-n.ended
	}
}

// file returns the path of a file of the node, as the kubelet sees it.
func (n *node) file(path ...string) string {
	return fmt.Sprintf("/proc/%d/root/run/kubelet/%s", n.pid, filepath.Join(path...))
}

// lease takes a free address. It uses addresses in turn, because others may still know one that has just become free.
func (n *node) lease() (netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for range 1 << (32 - network.Bits()) {
		a := n.next
		if n.next = a.Next(); !network.Contains(n.next.Next()) { // the last one is for broadcasts
			n.next = n.address.Next()
		}
		if !n.taken[a] {
			n.taken[a] = true
			return a, nil
		}
	}
	return netip.Addr{}, errors.New("no address is free")
}

func (n *node) release(a netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.taken, a)
}

// inNetwork calls f on a thread in the node's network.
func (n *node) inNetwork(f func() error) error { return enter([]namespace{{"net", n.pid}}, f) }

// listenDNS opens the socket that pods send questions for names to.
func (n *node) listenDNS() (conn net.PacketConn, err error) {
	err = n.inNetwork(func() (err error) {
		conn, err = net.ListenPacket("udp4", netip.AddrPortFrom(n.address, 53).String())
		return err
	})
	return conn, err
}

// ip runs lines of ip(8) in the node's network.
func (n *node) ip(lines ...string) error {
	return n.inNetwork(func() error {
		cmd := exec.Command("ip", "-batch", "-")
		cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(lines, "; "), err, bytes.TrimSpace(out))
		}
		return nil
	})
}

// status returns the status that the node reports. It claims more resources than the machine has, so that all pods fit.
func (n *node) status() core.NodeStatus {
	amount := core.ResourceList{core.ResourceCPU: resource.MustParse("64"), core.ResourceMemory: resource.MustParse("512Gi"),
		core.ResourcePods: resource.MustParse("200"), core.ResourceEphemeralStorage: resource.MustParse("512Gi")}
	now := meta.Now()
	return core.NodeStatus{Capacity: amount, Allocatable: amount,
		DaemonEndpoints: core.NodeDaemonEndpoints{KubeletEndpoint: core.DaemonEndpoint{Port: int32(n.port)}},
		Addresses:       []core.NodeAddress{{Type: core.NodeInternalIP, Address: "127.0.0.1"}, {Type: core.NodeHostName, Address: n.name}},
		Conditions: []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue, Reason: "KubeletReady", Message: "it runs",
			LastHeartbeatTime: now}}}
}

func (n *node) register(ctx context.Context, api *client) error {
	object := core.Node{ObjectMeta: meta.ObjectMeta{Name: n.name, Labels: map[string]string{core.LabelHostname: n.name, core.LabelOSStable: "linux"}}, Status: n.status()}
	var refused *refusal
	if err := api.call(ctx, "POST", "/api/v1/nodes", object, nil); err != nil && !(errors.As(err, &refused) && refused.code == 409) {
		return err
	}
	return n.beat(ctx, api)
}

// beat reports that the node is there.
func (n *node) beat(ctx context.Context, api *client) error {
	if err := api.call(ctx, "PATCH", "/api/v1/nodes/"+n.name+"/status", map[string]any{"status": n.status()}, nil); err != nil {
		return fmt.Errorf("report node: %w", err)
	}
	return nil
}

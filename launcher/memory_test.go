package launcher_test

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	gossh "golang.org/x/crypto/ssh"

	"gorun/contrib/must"
	"gorun/launcher"
	"gorun/launcher/dial"
	"gorun/launcher/hosts"
	"gorun/launcher/plan"
	"gorun/launcher/ssh"
	"gorun/rendezvous/wire"
)

// farm is ssh servers at any number of addresses, on which gorun is cached. Their daemons send what daemons of a job that
// goes well send.
type farm struct {
	listener net.Listener
	wg       sync.WaitGroup
}

func newFarm(t testing.TB) *farm {
	f := &farm{}
	var err error
	if f.listener, err = net.Listen("tcp4", "0.0.0.0:0"); err != nil {
		t.Fatal(err)
	}
	f.wg.Go(func() {
		for {
			c, err := f.listener.Accept()
			if err != nil {
				return
			}
			f.wg.Go(func() { f.serve(c, hostOf(t, c.LocalAddr())) })
		}
	})
	return f
}

func (f *farm) close() {
	f.listener.Close()
	f.wg.Wait()
}

var nonce = regexp.MustCompile(`\b[0-9a-f]{16}\b`)

// hostOf is the sshd at an address: each has a key of its own.
func hostOf(t testing.TB, addr net.Addr) *gossh.ServerConfig {
	seed := sha256.Sum256([]byte(addr.String()))
	key, err := gossh.NewSignerFromKey(ed25519.NewKeyFromSeed(seed[:]))
	must.Report(t, err)
	conf := &gossh.ServerConfig{PublicKeyCallback: func(gossh.ConnMetadata, gossh.PublicKey) (*gossh.Permissions, error) { return nil, nil }}
	conf.AddHostKey(key)
	return conf
}

func (f *farm) serve(c net.Conn, conf *gossh.ServerConfig) {
	defer c.Close()
	conn, channels, requests, err := gossh.NewServerConn(c, conf)
	if err != nil {
		return
	}
	defer conn.Close()
	f.wg.Go(func() { gossh.DiscardRequests(requests) })
	for ch := range channels {
		channel, requests, err := ch.Accept()
		if err != nil {
			return
		}
		for r := range requests {
			r.Reply(r.Type == "exec", nil)
			if r.Type != "exec" {
				continue
			}
			f.wg.Go(func() { gossh.DiscardRequests(requests) })
			fmt.Fprintf(channel, "gorun-bootstrap %s RUN\n", nonce.Find(r.Payload))
			daemon := &conversation{in: wire.NewReader(channel), out: wire.NewWriter(channel)}
			if daemon.begin() {
				daemon.at.Peers, daemon.told = nil, nil // this memory is the hosts'
				for _, rank := range daemon.at.Ranks {
					daemon.say(&wire.Exited{Process: rank.Process})
				}
				daemon.end()
			}
			channel.SendRequest("exit-status", false, gossh.Marshal(struct{ Status uint32 }{0}))
			channel.Close()
			break
		}
	}
}

// TestLaunchMemory: what a launch holds grows with its hosts, and not with their square. It includes the simulated
// hosts'.
func TestLaunchMemory(t *testing.T) {
	const most = 0.5 // MiB a host
	f := newFarm(t)
	defer f.close()
	perHost := func(n int) float64 { return float64(launchOnce(t, f, n)) / (1 << 20) / float64(n) }
	few, many := perHost(100), perHost(300)
	if few > most || many > most || many > 1.3*few {
		t.Errorf("%.2f MiB a host for 100 hosts, %.2f for 300, want at most %.2f, and no more for many than for few", few, many, most)
	}
	t.Logf("%.2f MiB a host for 100 hosts, %.2f for 300", few, many)
}

func launchOnce(t testing.TB, f *farm, n int) (heap uint64) {
	home := t.TempDir()
	_, private, err := ed25519.GenerateKey(nil)
	must.Do(t, err)
	block, err := gossh.MarshalPrivateKey(private, "")
	must.Do(t, err)
	must.Do(t, os.MkdirAll(filepath.Join(home, ".ssh"), 0o700))
	must.Do(t, os.WriteFile(filepath.Join(home, ".ssh", "id_ed25519"), pem.EncodeToMemory(block), 0o600))
	config := filepath.Join(home, "config")
	must.Do(t, os.WriteFile(config, []byte("StrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n"), 0o600))
	client, err := ssh.New(ssh.Config{Home: home, ConfigFile: config, Port: f.listener.Addr().(*net.TCPAddr).Port, LocalUser: "u", ConnectTimeout: time.Minute})
	must.Do(t, err)
	defer client.Close()
	var list []hosts.ListedHost
	for i := range n {
		list = append(list, hosts.ListedHost{Name: fmt.Sprintf("127.1.%d.%d", i/250, 1+i%250), Slots: 1})
	}
	placement, err := plan.Place(list, n, plan.Policy{})
	must.Do(t, err)
	rec := &recorder{}
	err = launcher.Run(context.Background(), launcher.Spec{Placement: placement, Programs: []launcher.Program{{Argv: []string{"true"}, Dir: "/"}}, Version: "test",
		StartTimeout: 2 * time.Minute, JobOptions: wire.JobOptions{Grace: time.Second}, Output: rec, Note: func(string, ...any) {},
		Dial: &dial.Remote{Args: []string{"worker"}, Once: true, By: &dial.SSH{Client: client,
			Binary: func() (ssh.Binary, error) {
				return ssh.Binary{SHA256: strings.Repeat("a", 64), Size: 1, Open: func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("x")), nil }}, nil
			}}},
		Progress: func(p launcher.Progress) {
			if p.Started == n && heap == 0 {
				runtime.GC() // what is garbage depends on when it was collected last
				var m runtime.MemStats
				runtime.ReadMemStats(&m)
				heap = m.HeapAlloc + m.StackInuse
			}
		}})
	must.Do(t, err)
	return heap
}

//go:build linux

package main

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"gorun/contrib/lab"
)

// uploading is how many bytes of the binary the hosts have.
func (c *sshCluster) uploading() (bytes int) {
	for _, h := range c.Hosts() {
		out := c.shell(h, "cat /root/.cache/gorun/*/.up-* /root/.cache/gorun/*/gorun 2>/dev/null | wc -c")
		n, _ := strconv.Atoi(strings.TrimSpace(out))
		bytes += n
	}
	return bytes
}

// TestAddressChangeInUpload: the launcher gets another address while it brings the binary, at its beginning, later, and once it has sent all.
// The start takes a little longer, and nothing of the former connections stays on a host.
func TestAddressChangeInUpload(t *testing.T) {
	for name, tc := range map[string]struct {
		bytes int
		times int
		args  []string
	}{
		"at its beginning": {1, 1, nil},
		"in its middle":    {6 << 20, 1, nil},
		"at its end":       {22 << 20, 1, nil}, // of two times 12
		"twice":            {1 << 20, 2, nil},
		"of system's ssh":  {6 << 20, 1, []string{"--ssh-command", "ssh"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newSSHCluster(t, 2)
			if err := c.Launcher().SetLink(lab.Link{Rate: 30e6}); err != nil {
				t.Fatal(err)
			}
			j := c.follow(append(tc.args, "-H", "host1,host2", "sh", "-c", "echo on $(uname -n)")...)
			for i := range tc.times {
				c.await("upload", func() bool { return c.uploading() >= tc.bytes || j.ended() })
				if j.ended() {
					t.Fatalf("the job ended before the address changed\n%s", j.out)
				}
				if err := c.Launcher().SetAddress(netip.MustParseAddr(fmt.Sprintf("10.77.0.%d", 70+i))); err != nil {
					t.Fatal(err)
				}
				t.Logf("moved with %d bytes there", c.uploading())
				if tc.times > 1 {
					time.Sleep(12 * time.Second) // it begins anew by then
				}
			}
			struck := time.Now()
			err := j.cmd.Wait()
			if found, _ := j.out.find(`>:on host[12]$`); err != nil || len(found) != 2 || j.out.has(`gorun: `) {
				t.Errorf("%v\n%s", err, j.out)
			}
			t.Logf("it took %v more", time.Since(struck).Round(time.Millisecond))
			c.expectLeft(90*time.Second, "sshd: ") // which hear of the end of connections from TCP
			for _, h := range c.Hosts() {
				if left := c.shell(h, "ls -A /root/.cache/gorun/*/.up-* 2>/dev/null; true"); left != "" {
					t.Errorf("on %s there is %s", h.Name(), left)
				}
			}
		})
	}
}

package launch

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
	"gorun/contrib/lab"
	"gorun/contrib/must"
)

// uploading is how many bytes of the binary the hosts have.
func uploading(c *e2etest.SSHCluster) (bytes int) {
	for _, h := range c.Hosts() {
		out := c.Shell(h, "cat /root/.cache/gorun/*/.up-* /root/.cache/gorun/*/gorun 2>/dev/null | wc -c")
		n, _ := strconv.Atoi(strings.TrimSpace(out))
		bytes += n
	}
	return bytes
}

// TestAddressChangeInUpload: the launcher gets another address while it brings the binary, once or twice, and once it has sent all.
// The start takes a little longer, and nothing of the former connections stays on a host.
func TestAddressChangeInUpload(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		bytes int
		times int
		args  []string
	}{
		"at its end":      {22 << 20, 1, nil}, // of two times 12
		"twice":           {1 << 20, 2, nil},
		"of system's ssh": {6 << 20, 1, []string{"--ssh-command", "ssh"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := e2etest.NewSSHCluster(t, 2)
			must.Do(t, c.Launcher().SetLink(lab.Link{Rate: 30e6}))
			j := c.Follow(append(tc.args, "-H", "host1,host2", "sh", "-c", "echo on $(uname -n)")...)
			if tc.bytes > 16<<20 { // the end takes longer than a look on a busy machine
				c.Await("most of the upload", func() bool { return uploading(c) >= 16<<20 || j.Ended() })
				j.Must(c.Launcher().SetLink(lab.Link{Rate: 3e6}))
			}
			for i := range tc.times {
				c.Await("upload", func() bool { return uploading(c) >= tc.bytes || j.Ended() })
				if j.Ended() {
					t.Fatalf("the job ended before the address changed\n%s", j.Out)
				}
				must.Do(t, c.Launcher().SetAddress(netip.MustParseAddr(fmt.Sprintf("10.77.0.%d", 70+i))))
				j.Must(c.Launcher().SetLink(lab.Link{Rate: 30e6}))
				t.Logf("moved with %d bytes there", uploading(c))
				if tc.times > 1 {
					time.Sleep(12 * time.Second) // it begins anew by then
				}
			}
			struck := time.Now()
			err := j.Cmd.Wait()
			// While the connections are dead a host may be silent for long enough to be reported.
			reports, _ := j.Out.Find(`gorun: `)
			silences, _ := j.Out.Find(`gorun: host[12] (has been silent for|is back after) \d+ s$`)
			if found, _ := j.Out.Find(`>:on host[12]$`); err != nil || len(found) != 2 || len(reports) != len(silences) {
				t.Errorf("%v\n%s", err, j.Out)
			}
			t.Logf("it took %v more", time.Since(struck).Round(time.Millisecond))
			c.ExpectLeft(90*time.Second, "sshd: ") // which hear of the end of connections from TCP
			for _, h := range c.Hosts() {
				if left := c.Shell(h, "ls -A /root/.cache/gorun/*/.up-* 2>/dev/null; true"); left != "" {
					t.Errorf("on %s there is %s", h.Name(), left)
				}
			}
		})
	}
}

package launch

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"gorun/contrib/e2e/e2etest"
)

// TestWrongHosts: a host on which something is not as it should be is named, with what is wrong there and what to do; what
// gorun can work around it does. TestMistakes has what is wrong more often.
func TestWrongHosts(t *testing.T) {
	c := e2etest.NewSSHCluster(t, 2)
	h := c.Host(2)
	const elsewhere = "for dir in /tmp /var/tmp /run /dev/shm; do mount -n -o remount,%s $dir || :; done 2>/dev/null"
	// home gives the host a home on a file system of its own, with the key.
	home := func(options string) string {
		return "cp /root/.ssh/authorized_keys /run/keys && mount -n -t tmpfs -o mode=700,size=100m lab /root && mkdir -m 700 /root/.ssh && " +
			"cp /run/keys /root/.ssh/authorized_keys && rm /run/keys && mount -n -o remount," + options + " /root"
	}
	for _, tt := range []struct {
		name       string
		spoil, fix string // on host2
		hosts      string
		flags      string
		code       int
		want, hint string
	}{
		{name: "no Python behind a virtual environment", spoil: "ln -s /opt/none/python3 /run/python3", fix: "rm /run/python3", hosts: "host2", flags: "/run/python3 x.py", code: 127,
			want: "rank 0 on host2 could not start: /run/python3: a link to /opt/none/python3, which is not there", hint: "a virtual environment needs the Python that it was made from"},
		{name: "home is read-only", spoil: home("ro"), fix: "umount -l /root", flags: "true"},
		{name: "home is full", spoil: home("size=64k"), fix: "umount -l /root", flags: "true"},
		{name: "home is noexec", spoil: home("noexec"), fix: "umount -l /root", flags: "true"},
		{name: "all is noexec", spoil: home("noexec") + "; " + strings.ReplaceAll(elsewhere, "%s", "noexec"), fix: "umount -l /root; " + strings.ReplaceAll(elsewhere, "%s", "exec"), flags: "true", code: 255,
			want: `host2: upload: no place for the binary: /root/.cache/gorun: mounted noexec; `, hint: "set XDG_CACHE_HOME on the host to a directory that is writable and not mounted noexec"},
		{name: "login files print", spoil: "for file in .bashrc .profile .ssh/rc; do echo 'echo noise; echo noise >&2' >/root/$file; done", fix: "rm /root/.bashrc /root/.profile /root/.ssh/rc", flags: "true"},
		{name: "no login", spoil: `sed 's,^\(root:.*\):[^:]*$,\1:/usr/sbin/nologin,' /etc/passwd >/run/passwd && mount -n --bind /run/passwd /etc/passwd`, fix: "umount /etc/passwd && rm /run/passwd", flags: "true", code: 255,
			want: "host2: start: exit code 1: it printed instead of running our command: This account is currently not available", hint: "the account has no login shell on this host"},
		{name: "forced command", spoil: `sed -i 's,^ssh-,command="echo only backups" ssh-,' /root/.ssh/authorized_keys`, fix: `sed -i 's,^command="echo only backups" ,,' /root/.ssh/authorized_keys`, flags: "true", code: 255,
			want: "host2: start: exit code 0: it printed instead of running our command: only backups", hint: "a forced command"},
		{name: "no route", hosts: "host1,10.99.0.1", flags: "true", code: 255, want: "10.99.0.1: connect: 10.99.0.1:22: network is unreachable", hint: "ip route get 10.99.0.1"},
		{name: "no way between the hosts, and no use for one", spoil: "ip route add unreachable 10.77.0.1/32", fix: "ip route del unreachable 10.77.0.1/32", flags: "true"},
		{name: "no way between the hosts", spoil: "ip route add unreachable 10.77.0.1/32", fix: "ip route del unreachable 10.77.0.1/32", flags: "--start-timeout 8 sleep 60", code: 255,
			want: `2 of 2 hosts failed\n +HOST +STEP +REASON\n +host1 .*\n +host2 `, hint: "firewall"},
	} {
		if tt.spoil != "" {
			c.Shell(h, tt.spoil)
		}
		hosts := tt.hosts
		if hosts == "" {
			hosts = "host1,host2"
		}
		r := c.GorunBeside(append([]string{"-H", hosts}, strings.Fields(tt.flags)...)...)
		said := r.Stderr
		wrong := tt.code == 0 && strings.Contains(said, "error") ||
			tt.code != 0 && (!regexp.MustCompile(`(?m)^gorun: error: .*`+tt.want).MatchString(said) || !regexp.MustCompile(`(?m)^gorun: hint: .*`+regexp.QuoteMeta(tt.hint)).MatchString(said))
		if r.Code != tt.code || wrong {
			t.Errorf("%s: exit code %d, want %d, %q and %q in\n%s", tt.name, r.Code, tt.code, tt.want, tt.hint, said)
		}
		if tt.fix != "" {
			c.Shell(h, tt.fix+"; rm -rf /tmp/gorun-0") // where the binary is when home is no place for it
		}
		c.ExpectNothingLeft(5 * time.Second)
	}
}

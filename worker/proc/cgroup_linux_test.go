package proc

import (
	"strings"
	"testing"
)

func TestFindCgroup(t *testing.T) {
	const (
		unified = "29 1 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n"
		hybrid  = "30 1 0:27 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n31 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n32 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
		part    = "33 1 0:26 /docker/abc /sys/fs/cgroup ro - cgroup2 cgroup rw\n"
	)
	for _, test := range []struct{ groups, mounts, want string }{
		{"0::/user.slice/user-0.slice/session-3.scope\n", unified, "/sys/fs/cgroup/user.slice/user-0.slice/session-3.scope"},
		{"0::/\n", unified, "/sys/fs/cgroup"},
		{"4:cpu:/x\n1:name=systemd:/y\n0::/z\n", hybrid, "/sys/fs/cgroup/unified/z"},
		{"0::/docker/abc/d\n", part, "/sys/fs/cgroup/d"},
		{"0::/docker/abcd\n", part, ""},
		{"0::/../other\n", unified, ""},
		{"4:cpu:/x\n", hybrid, ""},
		{"0::/z\n", "31 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n", ""},
		{"0::/z\n", hybrid + unified, "/sys/fs/cgroup/z /sys/fs/cgroup/unified/z"}, // the newest hides what was there
		{"", "", ""},
	} {
		if got := strings.Join(findCgroup(test.groups, test.mounts), " "); got != test.want {
			t.Errorf("%q on %q: %q, want %q", test.groups, test.mounts, got, test.want)
		}
	}
}

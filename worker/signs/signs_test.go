package signs

import (
	"reflect"
	"testing"
)

func TestParse(t *testing.T) {
	if ran, ready := parseSchedstat([]byte("12 34 5\n")); ran != 12 || ready != 34 {
		t.Error(ran, ready)
	}
	if n := field([]byte("VmRSS:\t  12 kB\nVmSwap:\t  345 kB\n"), "VmSwap"); n != 345 {
		t.Error(n)
	}
	if n := field([]byte("usage_usec 5\nthrottled_usec 7"), "throttled_usec"); n != 7 {
		t.Error(n)
	}
	mounts := parseMounts([]byte("22 1 8:1 / / rw shared:1 - ext4 /dev/sda rw\n" +
		"30 22 0:40 / /mnt/my\\040data rw,nosuid shared:2 master:1 - nfs4 server:/x rw\n31 22 0:41 / /mnt rw - tmpfs none rw\n"))
	if want := []mount{{"/", "ext4"}, {"/mnt/my data", "nfs4"}, {"/mnt", "tmpfs"}}; !reflect.DeepEqual(mounts, want) {
		t.Errorf("%+v", mounts)
	}
	for path, want := range map[string]string{"/mnt/my data/x": "nfs4", "/mnt/my dataset": "tmpfs", "/mnt": "tmpfs", "/mntx": "ext4", "/": "ext4"} {
		if got := mountOf(mounts, path).kind; got != want {
			t.Errorf("%s is on %s, want %s", path, got, want)
		}
	}
}

func TestParsePeer(t *testing.T) {
	text := []byte("  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n" +
		"   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 77 1 0 100 0 0 10 0\n" +
		"   1: 0100007F:C350 0200000A:1538 01 00000000:00000000 00:00000000 00000000     0        0 78 1 0 20 4 30 10 -1\n" +
		"   2: 00000000000000000000000001000000:C350 00000000000000000000000001000000:1538 01 0:0 0:0 0 0 0 79 1\n" +
		"   3: x y:z 01 0:0 0:0 0 0 0 80 1\n   4: x 0100:1 01 0:0 0:0 0 0 0 81 1\n")
	for inode, want := range map[string]string{"78": "10.0.0.2:5432", "79": "[::1]:5432", "80": "", "81": "", "99": ""} {
		if got := parsePeer(text, inode); got != want {
			t.Errorf("socket %s: %q, want %q", inode, got, want)
		}
	}
}

func TestParseHolder(t *testing.T) {
	text := []byte("1: POSIX  ADVISORY  WRITE 700 08:01:13 0 EOF\n2: FLOCK  ADVISORY  WRITE 800 08:01:14 0 EOF\n" +
		"2: -> FLOCK  ADVISORY  WRITE 801 08:01:14 0 EOF\n2: -> FLOCK ADVISORY READ 802 08:01:14 0 EOF\n9: -> x\n")
	for waiter, want := range map[int]int{801: 800, 802: 800, 700: 0, 5: 0} {
		if got := parseHolder(text, waiter); got != want {
			t.Errorf("%d waits for %d, want %d", waiter, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte("30 22 0:40 / /mnt rw - nfs4 server:/x rw\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		parseSchedstat(text)
		parsePeer(text, "78")
		parseHolder(text, 801)
		for _, m := range parseMounts(text) {
			mountOf([]mount{m}, "/x")
		}
	})
}

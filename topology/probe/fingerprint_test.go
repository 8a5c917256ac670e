package probe_test

import (
	"os"
	"path/filepath"
	"testing"

	"gorun/contrib/must"
	"gorun/topology/probe"
)

func TestFingerprint(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		if err == nil {
			err = os.WriteFile(path, []byte(text+"\n"), 0o600)
		}
		must.Do(t, err)
	}
	const nic = "sys/class/net/eth0/"
	write(nic+"type", "1")
	write(nic+"operstate", "up")
	write(nic+"speed", "10000")
	write(nic+"mtu", "1500")
	write("sys/class/net/lo/type", "772")
	write("sys/class/net/lo/mtu", "65536")
	last := probe.Fingerprint(root)
	for _, change := range [][2]string{{nic + "operstate", "down"}, {nic + "speed", "1000"}, {nic + "mtu", "9000"},
		{"sys/class/net/eth1/type", "1"}, {"sys/bus/pci/devices/0000:0b:00.0/class", "0x030200"}, {"proc/driver/nvidia/gpus/0000:0b:00.0/information", "Model: A100"},
		{"sys/devices/system/cpu/online", "0-3"}, {"sys/devices/system/node/node0/cpulist", "0-1"}, {"sys/devices/system/memory/memory8/state", "online"}} {
		write(change[0], change[1])
		now := probe.Fingerprint(root)
		if now == last {
			t.Errorf("%s is %s, but all looks the same:\n%s", change[0], change[1], now)
		}
		last = now
	}
	for _, same := range [][2]string{{nic + "statistics/rx_bytes", "5"}, {"sys/class/net/lo/mtu", "1500"}} {
		write(same[0], same[1])
		if now := probe.Fingerprint(root); now != last {
			t.Errorf("%s changes it:\n%s", same[0], now)
		}
	}
}

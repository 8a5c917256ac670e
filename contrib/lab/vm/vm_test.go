//go:build linux

package vm

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gorun/contrib/must"
)

const status = `Package: a
Status: install ok installed
Depends: b (>= 1), c | d, virtual
Pre-Depends: e:any
Architecture: amd64

Package: b
Status: install ok installed
Multi-Arch: same
Architecture: amd64
Depends: a

Package: c
Status: deinstall ok config-files

Package: d
Status: install ok installed

Package: e
Status: install ok installed

Package: real
Status: install ok installed
Provides: virtual (= 1), other

Package: base
Essential: yes
Status: install ok installed

Package: stranger
Status: install ok installed
`

func TestClosure(t *testing.T) {
	got, err := closure(status, []string{"a"})
	must.Do(t, err)
	if want := []string{"a", "b:amd64", "base", "d", "e", "real"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if _, err := closure(status, []string{"c"}); err == nil || !strings.Contains(err.Error(), "apt-get install c") {
		t.Errorf("a package that is not installed: %v", err)
	}
}

func TestLoadOrder(t *testing.T) {
	dir := t.TempDir()
	dep := "k/net/vmxnet3.ko:\nk/fs/ext4.ko: k/fs/jbd2.ko k/lib/crc-16.ko\nk/fs/jbd2.ko: k/lib/crc-16.ko\nk/lib/crc-16.ko:\n"
	must.Do(t, os.WriteFile(filepath.Join(dir, "modules.dep"), []byte(dep), 0o600))
	done := map[string]bool{}
	for _, x := range []struct{ names, want []string }{
		{[]string{"ext4", "built_in"}, []string{"k/lib/crc-16.ko", "k/fs/jbd2.ko", "k/fs/ext4.ko"}},
		{[]string{"crc_16", "vmxnet3"}, []string{"k/net/vmxnet3.ko"}},
	} {
		got, err := loadOrder(dir, x.names, done)
		if err != nil || !slices.Equal(got, x.want) {
			t.Errorf("%q: %q %v, want %q", x.names, got, err, x.want)
		}
	}
}

func TestArchive(t *testing.T) {
	var a archive
	a.dir("d")
	a.file("d/f", 0o644, []byte("hello"))
	b := a.end()
	if len(b)%4 != 0 {
		t.Errorf("%d bytes are not padded", len(b))
	}
	for _, want := range []string{"0707010000000200" + "0081a4", "d/f\x00", "hello\x00", "TRAILER!!!\x00"} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %q in %q", want, b)
		}
	}
}

//go:build linux

package vm

import (
	"bytes"
	"compress/gzip"
	"context"
	"embed"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed guest
var guest embed.FS

// packages are the packages of a guest, which also gets their dependencies.
var packages = []string{"bash", "coreutils", "util-linux", "mount", "procps", "grep", "sed", "hostname", "iproute2", "openssh-server",
	"openssh-client", "kmod", "numactl", "python3", "python3-numpy", "busybox-static", "libibverbs1", "ibverbs-providers"}

// Modules of the guest's kernel, for the image, for the NICs, and for Guest.SoftRoCE.
var (
	firstModules  = []string{"virtio_pci", "virtio_blk", "crc32c_generic", "ext4", "overlay"} // ext4 asks for crc32c by itself
	secondModules = []string{"vmxnet3", "virtio_net"}
	thirdModules  = []string{"crc32_generic", "ib_uverbs", "rdma_rxe"} // without the first, rdma_rxe finds no crc32
)

// image is the kernel, disk and RAM disk that guests boot from.
type image struct {
	kernel, ramdisk, root string
}

// makeImage makes the parts that dir lacks, with these packages; each lab has its own keys.
func makeImage(ctx context.Context, dir string, files map[string][]byte, packages []string) (image, error) {
	img := image{ramdisk: filepath.Join(dir, "ramdisk.gz"), root: filepath.Join(dir, "root-"+digest(packages)+".ext4")}
	kernels, err := findKernel(ctx, dir)
	if err != nil {
		return img, err
	}
	img.kernel = kernels.image
	if _, err := os.Stat(img.root); errors.Is(err, fs.ErrNotExist) {
		if err := makeRoot(ctx, dir, img.root, packages); err != nil {
			return img, err
		}
	}
	return img, makeRAMDisk(img.ramdisk, kernels.modules, files)
}

// digest distinguishes lists of packages.
func digest(names []string) string {
	return fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(strings.Join(names, " "))))
}

// kernel is an unpacked Debian kernel.
type kernel struct {
	image   string
	modules string // directory of one version
}

func findKernel(ctx context.Context, dir string) (kernel, error) {
	images, _ := filepath.Glob(filepath.Join(dir, "kernel/boot/vmlinuz-*"))
	if len(images) == 0 {
		if err := fetchKernel(ctx, dir); err != nil {
			return kernel{}, err
		}
		if images, _ = filepath.Glob(filepath.Join(dir, "kernel/boot/vmlinuz-*")); len(images) == 0 {
			return kernel{}, errors.New("unpack kernel: no image in the package")
		}
	}
	version := strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-")
	k := kernel{images[0], filepath.Join(dir, "kernel/lib/modules", version)}
	if _, err := os.Stat(filepath.Join(k.modules, "modules.dep")); err != nil {
		if err := run(ctx, dir, "depmod", "-b", filepath.Join(dir, "kernel"), version); err != nil {
			return k, err
		}
	}
	return k, nil
}

// fetchKernel downloads the package that linux-image-amd64 stands for.
func fetchKernel(ctx context.Context, dir string) error {
	out, err := exec.CommandContext(ctx, "apt-cache", "depends", "linux-image-amd64").Output()
	if err != nil {
		return fmt.Errorf("look for a kernel: %w", err)
	}
	var name string
	for line := range strings.Lines(string(out)) {
		if _, dep, ok := strings.Cut(line, "Depends: "); ok && name == "" {
			name = strings.TrimSpace(dep)
		}
	}
	if name == "" {
		return errors.New("look for a kernel: linux-image-amd64 depends on none")
	}
	if err := run(ctx, dir, "apt-get", "-qq", "download", name); err != nil {
		return err
	}
	debs, _ := filepath.Glob(filepath.Join(dir, name+"_*.deb"))
	if len(debs) == 0 {
		return fmt.Errorf("download %s: no package came", name)
	}
	// Under another name until it is complete.
	part := filepath.Join(dir, "kernel.part")
	os.RemoveAll(part)
	if err := run(ctx, dir, "dpkg", "-x", debs[0], part); err != nil {
		return err
	}
	os.Remove(debs[0])
	return os.Rename(part, filepath.Join(dir, "kernel"))
}

func run(ctx context.Context, dir string, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("run %s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}

// makeRoot makes the image that all guests share from the files of installed packages.
func makeRoot(ctx context.Context, dir, image string, packages []string) error {
	status, err := os.ReadFile("/var/lib/dpkg/status")
	if err != nil {
		return fmt.Errorf("read package list: %w", err)
	}
	names, err := closure(string(status), packages)
	if err != nil {
		return err
	}
	stage, err := os.MkdirTemp(dir, "stage")
	if err != nil {
		return fmt.Errorf("make stage: %w", err)
	}
	defer os.RemoveAll(stage)
	out, err := exec.CommandContext(ctx, "dpkg", append([]string{"-L"}, names...)...).Output()
	if err != nil {
		return fmt.Errorf("list files of packages: %w", err)
	}
	paths := strings.Split(string(out), "\n")
	paths = append(paths, "/bin", "/sbin", "/lib", "/lib64", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/ld.so.conf", "/etc/ld.so.cache")
	for _, pattern := range []string{"/etc/alternatives/*", "/etc/ld.so.conf.d/*", "/usr/bin/python3*", "/usr/lib/x86_64-linux-gnu/*blas*", "/usr/lib/x86_64-linux-gnu/*lapack*",
		"/usr/lib/x86_64-linux-gnu/*blas*/*", "/usr/lib/x86_64-linux-gnu/lapack/*"} {
		found, _ := filepath.Glob(pattern)
		paths = append(paths, found...)
	}
	for _, p := range paths {
		if err := place(stage, p); err != nil {
			return err
		}
	}
	part := image + ".part"
	os.Remove(part)
	if err := run(ctx, dir, "mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-m", "0", "-d", stage, part, "4G"); err != nil {
		return err
	}
	return os.Rename(part, image)
}

// unwanted matches files that a guest does not need.
var unwanted = []string{"/usr/share/doc/", "/usr/share/man/", "/usr/share/info/", "/usr/share/locale/", "/usr/share/lintian/", "/usr/share/bug/", "/usr/include/"}

// place copies a file of this machine to the stage, with the directories and links that lead to it.
func place(stage, name string) error {
	if !path.IsAbs(name) || name == "/." || strings.HasSuffix(name, ".a") || slices.ContainsFunc(unwanted, func(dir string) bool { return strings.HasPrefix(name, dir) }) {
		return nil
	}
	// The name's directory without symbolic links: /bin/x is staged as /usr/bin/x, and /bin as a link.
	parent, err := filepath.EvalSymlinks(path.Dir(name))
	if err != nil {
		return nil // not on this machine: an excluded path, as of documentation
	}
	from := path.Join(parent, path.Base(name))
	to := filepath.Join(stage, from)
	info, err := os.Lstat(from)
	if err != nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return fmt.Errorf("stage %s: %w", name, err)
	}
	switch {
	case info.IsDir():
		err = os.MkdirAll(to, info.Mode().Perm())
	case info.Mode()&fs.ModeSymlink != 0:
		var target string
		if target, err = os.Readlink(from); err == nil {
			if err = os.Symlink(target, to); errors.Is(err, fs.ErrExist) {
				err = nil
			}
		}
	case info.Mode().IsRegular():
		if err = os.Link(from, to); err != nil && !errors.Is(err, fs.ErrExist) {
			err = copyFile(from, to, info.Mode().Perm()) // another file system
		} else {
			err = nil
		}
	}
	if err != nil {
		return fmt.Errorf("stage %s: %w", name, err)
	}
	return nil
}

func copyFile(from, to string, mode fs.FileMode) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, mode)
}

// makeRAMDisk packs the first programs of a guest and the kernel's modules.
func makeRAMDisk(file, modules string, files map[string][]byte) error {
	var a archive
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		return fmt.Errorf("read busybox: %w", err)
	}
	for _, dir := range []string{"bin", "guest", "modules"} {
		a.dir(dir)
	}
	a.file("bin/busybox", 0o755, busybox)
	entries, err := guest.ReadDir("guest")
	if err != nil {
		return fmt.Errorf("read guest files: %w", err)
	}
	for _, e := range entries {
		b, err := guest.ReadFile("guest/" + e.Name())
		if err != nil {
			return fmt.Errorf("read guest files: %w", err)
		}
		name := "guest/" + e.Name()
		if e.Name() == "init" {
			name = "init"
		}
		a.file(name, 0o755, b)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		a.file("guest/"+name, 0o600, files[name])
	}
	done := map[string]bool{}
	for _, part := range []struct {
		list  string
		names []string
	}{{"first", firstModules}, {"second", secondModules}, {"third", thirdModules}} {
		order, err := loadOrder(modules, part.names, done)
		if err != nil {
			return err
		}
		var list strings.Builder
		for _, m := range order {
			b, err := os.ReadFile(filepath.Join(modules, m))
			if err != nil {
				return fmt.Errorf("read module: %w", err)
			}
			a.file("modules/"+path.Base(m), 0o644, b)
			fmt.Fprintln(&list, path.Base(m))
		}
		a.file("modules/"+part.list, 0o644, []byte(list.String()))
	}
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	z.Write(a.end())
	z.Close()
	return os.WriteFile(file, packed.Bytes(), 0o600)
}

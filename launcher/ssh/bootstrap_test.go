package ssh_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gorun/contrib/must"
	"gorun/launcher/ssh"
)

// program is a shell script that stands for gorun: it prints what it was given and copies its input, and then it has
// bulk that compresses badly.
func program(size int) ssh.Binary {
	text := []byte("#!/bin/sh\necho \"args:$*\"; echo \"umask:$(umask)\"; cat; echo end >&2; exit 7\n#")
	bulk := make([]byte, size-len(text))
	rand.NewChaCha8([32]byte{}).Read(bulk)
	for i := range bulk {
		bulk[i] = '0' + bulk[i]%64
	}
	return binaryOf(append(text, bulk...))
}

func binaryOf(text []byte) ssh.Binary {
	sum := sha256.Sum256(text)
	return ssh.Binary{
		SHA256: hex.EncodeToString(sum[:]), Size: int64(len(text)),
		Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil },
	}
}

// readBy has the launcher read b by another reader than its own.
func readBy(b *ssh.Binary, by func(io.Reader) io.Reader) {
	open := b.Open
	b.Open = func() (io.ReadCloser, error) {
		in, err := open()
		return io.NopCloser(by(in)), err
	}
}

// expect fails the test unless something was counted so often.
func expect(t *testing.T, what string, n *atomic.Int64, want int64) {
	t.Helper()
	if got := n.Load(); got != want {
		t.Errorf("%d %s, want %d", got, what, want)
	}
}

// uploads counts how often b is opened.
func uploads(b *ssh.Binary) *atomic.Int64 {
	var n atomic.Int64
	readBy(b, func(in io.Reader) io.Reader { n.Add(1); return in })
	return &n
}

// converse runs the program to its end and checks that input and output are clean.
func converse(t testing.TB, conn *ssh.Conn, b ssh.Binary, umask string) {
	t.Helper()
	s, err := conn.Bootstrap(testContext(t), b, []string{"worker", "--x=a b", "$HOME", "*"})
	must.Do(t, err)
	talk(t, s, umask)
}

func talk(t testing.TB, s *ssh.Session, umask string) {
	t.Helper()
	input := strings.Repeat("protocol\x00\xff\n", 20000)
	var wg sync.WaitGroup
	wg.Go(func() { io.WriteString(s.Stdin, input); s.Stdin.Close() })
	out, err := io.ReadAll(s.Stdout)
	wg.Wait()
	must.Do(t, err)
	if want := "args:worker --x=a b $HOME *\numask:" + umask + "\n" + input; string(out) != want {
		t.Fatalf("output of %d bytes, want %d: %.200q", len(out), len(want), out)
	}
	said, _ := io.ReadAll(s.Stderr)
	if !strings.HasSuffix(string(said), "end\n") {
		t.Errorf("standard error: %q", said)
	}
	if code, err := s.Wait(); code != 7 || err != nil {
		t.Errorf("exit code %d, %v", code, err)
	}
}

// shellHost stands for ssh: it runs the command with the shells under test and a cache of its own.
func shellHost(t *testing.T, login, inner, path, before string) (*ssh.Client, string) {
	t.Helper()
	h := newHome(t)
	cache := h.path("cache")
	writeFile(t, h.path("ssh"), fmt.Appendf(nil, `#!/bin/sh
umask 027
export XDG_CACHE_HOME='%s' HOME='%s' PATH='%s'
%s
case $2 in "exec /bin/sh -c "*) exec %s -c "exec %s ${2#exec /bin/sh}" ;; esac
exec %s -c "$2"
`, cache, h.dir, path, before, login, inner, login), 0o700)
	h.Command = []string{h.path("ssh")}
	return h.client(t), cache
}

// inShells calls test for each of the login shells that is on this machine, with a shell for our script and a PATH.
func inShells(t *testing.T, path string, shells []string, test func(t *testing.T, login, inner, path string)) {
	for _, name := range shells {
		t.Run(name, func(t *testing.T) {
			login, ok := lookPath(name)
			if !ok {
				t.Skipf("needs %s: install the package of that name", name)
			}
			switch name {
			case "busybox":
				applets := t.TempDir()
				if out, err := exec.Command(login, "--install", "-s", applets).CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				test(t, login+" sh", applets+"/sh", applets)
			case "bash", "dash", "mksh":
				test(t, login, login, path)
			default:
				test(t, login, "/bin/sh", path)
			}
		})
	}
}

func TestBootstrapInEveryShell(t *testing.T) {
	shells := []string{"/bin/sh", "bash", "dash", "zsh", "csh", "tcsh", "fish", "mksh", "busybox"}
	inShells(t, "/usr/bin:/bin", shells, func(t *testing.T, login, inner, path string) {
		client, cache := shellHost(t, login, inner, path, "echo; echo -n noise")
		b := program(300 << 10)
		n := uploads(&b)
		dir := filepath.Join(cache, "gorun", b.SHA256)

		converse(t, connect(t, client, "h"), b, "0027")
		converse(t, connect(t, client, "h"), b, "0027")
		expect(t, "uploads", n, 1)
		wantFiles(t, dir, "gorun", "ok")
		if st, err := os.Stat(filepath.Join(dir, "gorun")); err != nil || st.Mode().Perm() != 0o700 || st.Size() != b.Size {
			t.Errorf("cached file: %v %v", st, err)
		}

		// A damaged file is found out and replaced.
		writeFile(t, filepath.Join(dir, "gorun"), []byte("#!/bin/sh\necho intruder\n"), 0o700)
		later(t, filepath.Join(dir, "gorun"), filepath.Join(dir, "ok"))
		converse(t, connect(t, client, "h"), b, "0027")
		// So is one that lost its mark but is sound: it is not sent again.
		os.Remove(filepath.Join(dir, "ok"))
		converse(t, connect(t, client, "h"), b, "0027")
		wantFiles(t, dir, "gorun", "ok")

		// In pieces.
		ssh.Near(client)
		converse(t, connect(t, client, "h"), program(3*ssh.PieceSize+1), "0027")
	})
}

func lookPath(name string) (string, bool) {
	p, err := exec.LookPath(name)
	return p, err == nil
}

// later makes sure that file a is newer than b.
func later(t *testing.T, a, b string) {
	t.Helper()
	st, err := os.Stat(a)
	must.Do(t, err)
	old := st.ModTime().Add(-1e10)
	must.Do(t, os.Chtimes(b, old, old))
}

// wantFiles waits for them: the mark of a binary that is on disk is put there beside the program that runs already.
func wantFiles(t *testing.T, dir string, names ...string) {
	t.Helper()
	must.Soon(t, fmt.Sprintf("%s has nothing but %q", dir, names), func() bool {
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return slices.EqualFunc(entries, names, func(e fs.DirEntry, name string) bool { return e.Name() == name })
	})
}

// hostHome is a directory for what hosts keep, which is there until all of that is on disk.
func hostHome(t testing.TB) string {
	dir := t.TempDir()
	t.Cleanup(func() {
		must.Soon(t, "all binaries are marked as safe", func() bool { return len(find(t, dir, "gorun")) <= len(find(t, dir, "ok")) })
	})
	return dir
}

// Without gzip the binary goes as it is, and without any checksum tool its size has to do.
func TestBootstrapOnBareHost(t *testing.T) {
	client, cache := shellHost(t, "/bin/sh", "/bin/sh", bareTools(t), "")
	b := program(100 << 10)
	n := uploads(&b)
	converse(t, connect(t, client, "h"), b, "0027")
	converse(t, connect(t, client, "h"), b, "0027")
	expect(t, "uploads", n, 1)
	wantFiles(t, filepath.Join(cache, "gorun", b.SHA256), "gorun", "ok")
}

// bareTools is a PATH without gzip, so that every upload opens the binary.
func bareTools(t *testing.T, more ...string) string {
	bin := t.TempDir()
	for _, tool := range append([]string{"sh", "cat", "head", "tee", "mkdir", "chmod", "mv", "rm", "wc", "id", "uname", "find"}, more...) {
		p, ok := lookPath(tool)
		if !ok {
			t.Fatalf("no %s", tool)
		}
		must.Do(t, os.Symlink(p, filepath.Join(bin, filepath.Base(tool))))
	}
	return bin
}

// Several names of one machine, or hosts with one home: the binary is sent once.
func TestBootstrapOncePerDirectory(t *testing.T) {
	client, cache := shellHost(t, "/bin/sh", "/bin/sh", bareTools(t), "")
	b := program(500 << 10)
	// The first waits with its upload until all have asked, or would have.
	const hosts = 6
	n := uploads(&b)
	started := make(chan struct{}, hosts)
	readBy(&b, func(in io.Reader) io.Reader {
		for range hosts {
			<-started
		}
		return in
	})
	var wg sync.WaitGroup
	for range hosts {
		conn := connect(t, client, "h")
		wg.Go(func() {
			started <- struct{}{}
			s, err := conn.Bootstrap(testContext(t), b, []string{"worker", "--x=a b", "$HOME", "*"})
			if err != nil {
				t.Error(err)
				return
			}
			talk(t, s, "0027")
		})
	}
	wg.Wait()
	expect(t, "uploads", n, 1)
	wantFiles(t, filepath.Join(cache, "gorun", b.SHA256), "gorun", "ok")
}

// A directory whose name was made but never written, as by a power cut, is one that no other login leads to.
func TestBootstrapDirectoryWithoutName(t *testing.T) {
	client, cache := shellHost(t, "/bin/sh", "/bin/sh", "/usr/bin:/bin", "")
	must.Do(t, os.MkdirAll(filepath.Join(cache, "gorun"), 0o700))
	writeFile(t, filepath.Join(cache, "gorun", "id"), nil, 0o600)
	converse(t, connect(t, client, "h"), program(100<<10), "0027")
}

// failing bootstraps b and expects it to fail.
func failing(t *testing.T, client *ssh.Client, b ssh.Binary, step ssh.Step, texts ...string) {
	t.Helper()
	s, err := connect(t, client, "h").Bootstrap(testContext(t), b, nil)
	if err == nil {
		// Only a program that could not be executed is found out so late.
		s.Stdin.Close()
		if _, err = io.ReadAll(s.Stdout); err == nil {
			err = s.Explain(io.EOF)
		}
	}
	wantError(t, err, "h", step, texts...)
}

func TestBootstrapFailures(t *testing.T) {
	b := program(100 << 10)
	plain := func(t *testing.T, before string) *ssh.Client {
		c, _ := shellHost(t, "/bin/sh", "/bin/sh", "/usr/bin:/bin", before)
		return c
	}
	t.Run("platform", func(t *testing.T) {
		b := b
		b.Platform = "Plan9 vax"
		failing(t, plain(t, ""), b, ssh.StepStart, "wrong platform: the host is Linux", "this gorun is not made for it", "run gorun from a machine of the same kind")
	})
	t.Run("no shell", func(t *testing.T) {
		failing(t, plain(t, "echo This account is currently not available. >&2; exit 1"), b, ssh.StepStart,
			"exit code 1: This account is currently not available.", "no login shell")
	})
	t.Run("noise without end", func(t *testing.T) {
		failing(t, plain(t, "exec yes"), b, ssh.StepStart, "printed more than", "see what the login files on the host print")
	})
	t.Run("quiet death", func(t *testing.T) {
		failing(t, plain(t, "exit 5"), b, ssh.StepStart, "exit code 5 without a word")
	})
	t.Run("source fails", func(t *testing.T) {
		b := b
		b.Open = func() (io.ReadCloser, error) { return nil, errors.New("gone") }
		failing(t, plain(t, ""), b, ssh.StepUpload, "gone")
		b = program(100 << 10)
		b.Size++
		failing(t, plain(t, ""), b, ssh.StepUpload, "binary is 102400 bytes, not 102401")
	})
	t.Run("not executable here", func(t *testing.T) {
		elf := append([]byte("\x7fELF\x02\x01\x01\x00"), make([]byte, 100)...)
		failing(t, plain(t, ""), binaryOf(elf), ssh.StepStart, "exit code")
	})
	for said, hint := range map[string]string{
		"sh: gorun: cannot execute binary file: Exec format error":  "the host has another kind of processor than this gorun was built for",
		"cp: error writing: No space left on device":                "the host's disk is full, or over quota",
		"mkdir: cannot create directory: Read-only file system":     "the host's home is read-only",
		"sh: fork: retry: Resource temporarily unavailable":         "the host is out of memory or processes: see ulimit -u",
		"sh: gorun: Permission denied":                              "the directory of the binary is mounted noexec",
		"This account is currently not available, says the machine": "the account has no login shell on this host",
	} {
		t.Run(said, func(t *testing.T) {
			failing(t, plain(t, "echo '"+said+"' >&2; exit 126"), b, ssh.StepStart, said, hint)
		})
	}
	t.Run("transport", func(t *testing.T) {
		failing(t, plain(t, "echo ssh: no route to host >&2; exit 255"), b, ssh.StepStart, "no route to host")
	})
	t.Run("bad arguments", func(t *testing.T) {
		for _, arg := range []string{"it's", `a\b`, "wow!", "a\nb"} {
			_, err := connect(t, plain(t, ""), "h").Bootstrap(testContext(t), b, []string{arg})
			wantError(t, err, "h", ssh.StepStart, "cannot be quoted")
		}
	})
}

// TestHostileUpload: a host does not run what it has received if the bytes are not those that the launcher announced,
// although they are as many, plain and compressed, and where only a slow tool computes the hash. Nothing of it is left.
func TestHostileUpload(t *testing.T) {
	for title, path := range map[string]string{"gz": "/usr/bin:/bin", "raw": toolsWithout(t, "gzip"), "sha256sum": toolsWithout(t, "openssl")} {
		t.Run(title, func(t *testing.T) {
			b := program(200 << 10)
			ran := filepath.Join(t.TempDir(), "ran")
			c, cache := shellHost(t, "/bin/sh", "/bin/sh", path, "")
			readBy(&b, func(in io.Reader) io.Reader {
				text, err := io.ReadAll(in)
				must.Do(t, err)
				copy(text, "#!/bin/sh\n>"+ran+"\nexit 0\n")
				return bytes.NewReader(text)
			})
			failing(t, c, b, ssh.StepUpload, "the host received another binary than this gorun", "look for a program between here and the host that changes what ssh carries")
			if _, err := os.Stat(ran); err == nil {
				t.Error("the host ran it")
			}
			wantFiles(t, filepath.Join(cache, "gorun", b.SHA256))
		})
	}
}

// toolsWithout returns a path with all programs of this machine but one.
func toolsWithout(t *testing.T, missing string) string {
	dir := t.TempDir()
	all, err := filepath.Glob("/usr/bin/*")
	must.Do(t, err)
	for _, program := range all {
		if name := filepath.Base(program); name != missing {
			os.Symlink(program, filepath.Join(dir, name))
		}
	}
	return dir
}

// otherPlace is the directory of b where the cache of a user is no good. It is removed at the end of the test.
func otherPlace(t *testing.T, b ssh.Binary) string {
	dir := fmt.Sprintf("/tmp/gorun-%d/%s", os.Getuid(), b.SHA256)
	t.Cleanup(func() {
		os.RemoveAll(dir)
		os.Remove(filepath.Dir(dir)) // if it is empty
	})
	return dir
}

// When the cache is no good the program goes to a directory of ours elsewhere.
func TestBootstrapFallsBack(t *testing.T) {
	b := program(64<<10 + os.Getpid()%1000) // not the one of another run
	fallback := otherPlace(t, b)
	tests := map[string]string{
		"home missing":     "export XDG_CACHE_HOME=/proc/nowhere",
		"cache not a dir":  "export XDG_CACHE_HOME=/dev/null",
		"home is full":     "", // set below
		"mounted noexec":   "",
		"relative setting": "cd /proc; export XDG_CACHE_HOME=nowhere",
	}
	for title, before := range tests {
		t.Run(title, func(t *testing.T) {
			switch title {
			case "home is full":
				before = "export XDG_CACHE_HOME=" + mount(t, "size=32k")
			case "mounted noexec":
				before = "export XDG_CACHE_HOME=" + mount(t, "noexec")
			}
			os.RemoveAll(fallback)
			c, _ := shellHost(t, "/bin/sh", "/bin/sh", "/usr/bin:/bin", before)
			n := uploads(&b)
			converse(t, connect(t, c, "h"), b, "0027")
			wantFiles(t, fallback, "gorun", "ok")
			converse(t, connect(t, c, "h"), b, "0027")
			expect(t, "uploads", n, 1)
			if st, err := os.Stat(filepath.Dir(fallback)); err != nil || st.Mode().Perm() != 0o700 {
				t.Errorf("mode of the directory: %v %v", st.Mode(), err)
			}
		})
	}
}

func mount(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", options, "gorun-test", dir).CombinedOutput(); err != nil {
		t.Skipf("needs to mount a tmpfs (root): %s", out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %s", out)
		}
	})
	return dir
}

// To hosts that are near the binary goes in pieces.
func TestBootstrapInPieces(t *testing.T) {
	near := func(t *testing.T, before string) *ssh.Client {
		c, _ := shellHost(t, "/bin/sh", "/bin/sh", "/usr/bin:/bin", before)
		ssh.Near(c)
		return c
	}
	for _, size := range []int{ssh.PieceSize - 1, ssh.PieceSize, 2 * ssh.PieceSize} {
		converse(t, connect(t, near(t, ""), "h"), program(size), "0027")
	}

	t.Run("shorter than it was", func(t *testing.T) {
		b := program(2 * ssh.PieceSize)
		b.Size += ssh.PieceSize
		failing(t, near(t, ""), b, ssh.StepUpload, fmt.Sprintf("binary is %d bytes, not %d", 2*ssh.PieceSize, b.Size))
	})
	// Then it goes to another place, from its beginning. What the first one was sent and did not take is not part of it.
	t.Run("place gets full", func(t *testing.T) {
		b := program(2<<20 + os.Getpid()%1000) // not the one of another run
		fallback := otherPlace(t, b)
		c := near(t, "export XDG_CACHE_HOME="+mount(t, "size=1100k"))
		n := uploads(&b)
		converse(t, connect(t, c, "h"), b, "0027")
		wantFiles(t, fallback, "gorun", "ok")
		expect(t, "uploads", n, 2)
	})
	// No more is sent than what the host has taken, and two pieces, however much its window allows.
	t.Run("host does not answer", func(t *testing.T) {
		srv, h := startServer(t), newHome(t)
		srv.env, srv.unheard = []string{"XDG_CACHE_HOME=" + h.path("cache")}, true
		b := program(4 * ssh.PieceSize)
		var taken atomic.Int64
		readBy(&b, func(in io.Reader) io.Reader {
			return readerFunc(func(p []byte) (int, error) {
				n, err := in.Read(p)
				taken.Add(int64(n))
				return n, err
			})
		})
		c := h.client(t)
		ssh.Near(c)
		conn := connect(t, c, srv.addr)
		ctx, cancel := context.WithCancel(testContext(t))
		defer cancel()
		var wg sync.WaitGroup
		wg.Go(func() {
			defer cancel()
			must.Soon(t, "a piece is taken", func() bool { return taken.Load() >= ssh.PieceSize })
			time.Sleep(50 * time.Millisecond)
		})
		_, err := conn.Bootstrap(ctx, b, nil)
		wg.Wait()
		if !errors.Is(err, context.Canceled) || taken.Load() > 2*ssh.PieceSize {
			t.Errorf("%d bytes were sent, more than two pieces of %d; %v", taken.Load(), ssh.PieceSize, err)
		}
	})
}

// Cancelling in the middle of an upload leaves nothing in the cache.
func TestBootstrapCancelled(t *testing.T) {
	srv, h := startServer(t), newHome(t)
	cache := h.path("cache")
	srv.env = []string{"XDG_CACHE_HOME=" + cache}
	b := program(2 << 20)
	ctx, cancel := context.WithCancel(context.Background())
	readBy(&b, func(in io.Reader) io.Reader {
		return io.MultiReader(io.LimitReader(in, b.Size/2), readerFunc(func([]byte) (int, error) { cancel(); return 0, io.EOF }))
	})
	_, err := connect(t, h.client(t), srv.addr).Bootstrap(ctx, b, nil)
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	must.Soon(t, "the upload's file is gone", func() bool { return len(find(t, cache, ".up-*")) == 0 })
	wantFiles(t, filepath.Join(cache, "gorun", b.SHA256))

	// The same while the bytes are on their way.
	srv = startServer(t)
	srv.env, srv.stall = []string{"XDG_CACHE_HOME=" + cache}, 1<<20
	b = program(2 << 20)
	ctx, cancel = context.WithCancel(context.Background())
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		must.Soon(t, "the upload has begun", func() bool {
			for _, f := range find(t, cache, ".up-*") {
				if st, err := os.Stat(f); err == nil && st.Size() > 100<<10 {
					return true
				}
			}
			return ctx.Err() != nil
		})
		cancel()
	})
	_, err = connect(t, h.client(t), srv.addr).Bootstrap(ctx, b, nil)
	cancel()
	wg.Wait()
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	must.Soon(t, "the upload's file is gone", func() bool { return len(find(t, cache, ".up-*")) == 0 })
	wantFiles(t, filepath.Join(cache, "gorun", b.SHA256))
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// find returns the files of a directory with names of that pattern.
func find(t testing.TB, dir, pattern string) []string {
	var found []string
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if ok, _ := filepath.Match(pattern, filepath.Base(path)); ok && err == nil && !d.IsDir() {
			found = append(found, path)
		}
		return nil
	})
	return found
}

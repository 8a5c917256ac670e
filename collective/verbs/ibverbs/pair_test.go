//go:build rdma && linux && (amd64 || arm64)

package ibverbs_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"go.uber.org/goleak"

	"gorun/collective/verbs"
	"gorun/collective/verbs/ibverbs"
	"gorun/collective/verbs/verbstest"
	"gorun/contrib/must"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// standin returns the library of contrib/verbs and its directory.
func standin(t testing.TB) (provider verbs.Provider, directory string) {
	t.Helper()
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	library := filepath.Join(t.TempDir(), "libibverbs.so.1")
	shared, err := os.MkdirTemp("/dev/shm", "gorun-verbs-") // in memory: registered pages become its files
	must.Do(t, err)
	t.Cleanup(func() { os.RemoveAll(shared) })
	if out, err := exec.Command(compiler, "-shared", "-fPIC", "-O2", "-o", library, "../../../contrib/verbs/standin.c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Setenv("VERBS_STANDIN", shared)
	provider, err = ibverbs.Load(library)
	must.Do(t, err)
	return provider, shared
}

// Segments go over the stand-in's queue pairs through the functions and structures of the real library.
func TestExercise(t *testing.T) {
	provider, directory := standin(t)
	totals := verbstest.Exercise(t, verbstest.Exercised{Provider: func() verbs.Provider { return provider }, Segments: 5_000})
	if totals.UpgradedBytes != totals.SentBytes {
		t.Errorf("%d of %d bytes went over RDMA", totals.UpgradedBytes, totals.SentBytes)
	}
	if left, err := filepath.Glob(filepath.Join(directory, "*-*")); err != nil || len(left) > 0 {
		t.Errorf("%d files are left: %v, error %v", len(left), left, err)
	}
}

// fault writes a file that makes a fault. Queue pairs that are connected from then on have it.
func fault(t testing.TB, directory, name, text string) {
	t.Helper()
	must.Do(t, os.WriteFile(filepath.Join(directory, name), []byte(text), 0o600))
}

// One in 200 writes breaks its queue pair, the port goes down now and then, the device is removed, and addresses move in
// its table. Besides, one in 500 writes makes nothing but an event of its pair, and completions of one pair come after those of
// another that were posted later.
func TestExerciseWithFaults(t *testing.T) {
	provider, directory := standin(t)
	fault(t, directory, "kill", "200")
	fault(t, directory, "event", "500")
	fault(t, directory, "late", "20")
	faults := []string{"down", "gone", "gids"}
	totals := verbstest.Exercise(t, verbstest.Exercised{Provider: func() verbs.Provider { return provider }, Segments: 5_000,
		Disturb: func(round int) {
			if round%100 == 50 {
				fault := filepath.Join(directory, faults[round/100%len(faults)])
				if err := os.WriteFile(fault, []byte("3"), 0o600); err != nil {
					t.Error(err)
				}
				time.Sleep(5 * time.Millisecond)
				os.Remove(fault)
			}
		}})
	if totals.UpgradedBytes == 0 || totals.ResentSegments == 0 {
		t.Errorf("%d bytes went over RDMA, %d segments were sent again", totals.UpgradedBytes, totals.ResentSegments)
	}
	if left, err := filepath.Glob(filepath.Join(directory, "*-*")); err != nil || len(left) > 0 {
		t.Errorf("%d files are left: %v, error %v", len(left), left, err)
	}
}

// linked returns a pair that is connected to another.
func linked(t *testing.T, provider verbs.Provider) verbs.Pair {
	t.Helper()
	ports, err := provider.Ports()
	if err != nil || len(ports) == 0 {
		t.Fatalf("ports %v, error %v", ports, err)
	}
	var ends [2]verbs.Pair
	for i := range ends {
		if ends[i], err = provider.Open(verbs.Place{Port: ports[0], GID: ports[0].GIDs[0]}, verbs.Size{Ring: 64 << 10, Depth: 4}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := ends[i].Close(); err != nil {
				t.Error(err)
			}
		})
		must.Do(t, ends[i].Receive(4))
	}
	for i := range ends {
		must.Do(t, ends[i].Connect(1, ends[1-i].End(), verbs.DefaultTuning))
	}
	return ends[0]
}

// Queue pairs have no order among each other: a write completes before one that another pair was given earlier.
func TestCompletionsOfPairsHaveNoOrder(t *testing.T) {
	provider, directory := standin(t)
	prompt := linked(t, provider)
	fault(t, directory, "late", "1")
	late := linked(t, provider)
	var order []verbs.Pair
	for _, p := range []verbs.Pair{late, prompt} {
		must.Do(t, p.Write(0, 1, 0))
	}
	for end := time.Now().Add(time.Minute); len(order) < 2 && time.Now().Before(end); {
		for _, p := range []verbs.Pair{late, prompt} {
			var done [1]verbs.Completion
			if n, err := p.Poll(done[:]); err != nil || n > 0 && done[0].Status != 0 {
				t.Fatalf("%d completions %v, error %v", n, done, err)
			} else if n > 0 {
				order = append(order, p)
			}
		}
	}
	if !slices.Equal(order, []verbs.Pair{prompt, late}) {
		t.Errorf("%d writes completed, in the order in which they were posted", len(order))
	}
}

// The completion that comes late wakes who waits for it.
func TestWaitForLateCompletion(t *testing.T) {
	provider, directory := standin(t)
	fault(t, directory, "late", "1")
	p := linked(t, provider)
	for range 20 {
		must.Do(t, p.Write(0, 1, 0))
		for n := 0; n == 0; {
			var done [1]verbs.Completion
			var err error
			if n, err = p.Poll(done[:]); err == nil && n == 0 {
				err = p.Wait()
			}
			must.Do(t, err)
		}
	}
}

// An event of a pair ends its use, also where the device completes nothing that was posted to it, and is acknowledged: else
// the pair could not be destroyed.
func TestEventOfPair(t *testing.T) {
	provider, directory := standin(t)
	fault(t, directory, "event", "1")
	p := linked(t, provider)
	must.Do(t, p.Write(0, 1, 0))
	event, ok := errors.AsType[*verbs.EventError](p.Event())
	if !ok || event.Event < verbs.EventPair || event.Event > verbs.EventPairAccess {
		t.Errorf("the event is %v", event)
	}
	var done [1]verbs.Completion
	if n, err := p.Poll(done[:]); n > 0 || err != nil {
		t.Errorf("%d completions %v, error %v", n, done, err)
	}
}

// An event ends the use of a pair if it is about its device, its port or its address.
func TestEvents(t *testing.T) {
	provider, directory := standin(t)
	ports, err := provider.Ports()
	if err != nil || len(ports) != 1 || len(ports[0].GIDs) < 2 {
		t.Fatalf("ports %+v, error %v", ports, err)
	}
	p, err := provider.Open(verbs.Place{Port: ports[0], GID: ports[0].GIDs[1]}, verbs.Size{Ring: 64 << 10, Depth: 4})
	must.Do(t, err)
	for _, c := range []struct {
		name, text string
		want       uint32
	}{
		{"down", "", verbs.EventPort},
		{"gids", "0", 0}, // all entries are where they were, and the next event comes
		{"gids", "5", verbs.EventGID},
		{"gone", "", verbs.EventDevice},
	} {
		fault(t, directory, c.name, c.text)
		if c.want == 0 {
			continue
		}
		event, ok := errors.AsType[*verbs.EventError](p.Event())
		if ok && c.want == verbs.EventDevice && event.Event == verbs.EventGID { // the first event was only read when the second had come
			event, ok = errors.AsType[*verbs.EventError](p.Event())
		}
		if !ok || event.Event != c.want || event.Device != ports[0].Device {
			t.Fatalf("%s %s makes %+v, want %d", c.name, c.text, event, c.want)
		}
	}
	p.Wake()
	if err := p.Event(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after Wake: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// A device that leaves sysfs ends the use of its pairs, also where the driver makes no event of it.
func TestRemoval(t *testing.T) {
	provider, directory := standin(t)
	fault(t, directory, "sysfs", "")
	p, other := linked(t, provider), linked(t, provider)
	must.Do(t, os.Remove(filepath.Join(directory, "sysfs")))
	for _, p := range []verbs.Pair{p, other} {
		event, ok := errors.AsType[*verbs.EventError](p.Event())
		if !ok || event.Event != verbs.EventDevice || event.Device == "" {
			t.Errorf("the event is %+v", event)
		}
	}
	late := linked(t, provider) // of a device without a directory
	time.AfterFunc(1500*time.Millisecond, func() { late.Wake() })
	if err := late.Event(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after Wake: %v", err)
	}
}

// Whoever knows every key of a pair can write to the ring that it receives into, and not to the one that it sends from.
func TestNoKeyOpensSendRing(t *testing.T) {
	provider, directory := standin(t)
	ports, err := provider.Ports()
	if err != nil || len(ports) == 0 {
		t.Fatalf("ports %v, error %v", ports, err)
	}
	open := func() verbs.Pair {
		p, err := provider.Open(verbs.Place{Port: ports[0], GID: ports[0].GIDs[0]}, verbs.Size{Ring: 64 << 10, Depth: 4})
		must.Do(t, err)
		t.Cleanup(func() { p.Close() })
		must.Do(t, p.Receive(4))
		return p
	}
	victim := open()
	sends, receives := victim.Rings()
	files, err := filepath.Glob(filepath.Join(directory, "memory-*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("files of memory: %v, error %v", files, err)
	}
	write := func(to verbs.End) (status uint32) {
		other := open()
		must.Do(t, other.Connect(1, to, verbs.DefaultTuning))
		send, _ := other.Rings()
		send[0] = 'x'
		must.Do(t, other.Write(0, 1, 0))
		var done [1]verbs.Completion
		if n, err := other.Poll(done[:]); err != nil || n != 1 {
			t.Fatalf("%d completions, error %v", n, err)
		}
		return done[0].Status
	}
	if status := write(victim.End()); status != 0 || receives[0] != 'x' {
		t.Errorf("a write to the ring of received bytes: status %d, %q", status, receives[0])
	}
	for _, file := range files {
		key, err := strconv.ParseUint(strings.TrimPrefix(filepath.Base(file), "memory-"), 16, 32)
		must.Do(t, err)
		end := victim.End()
		end.Ring, end.Key = uint64(uintptr(unsafe.Pointer(&sends[0]))), uint32(key)
		if status := write(end); status == 0 || sends[0] != 0 {
			t.Errorf("a write to the ring to send from, by the key %#x: status %d, %q", key, status, sends[0])
		}
	}
}

// What users choose for queue pairs is what they are connected with.
func TestTuned(t *testing.T) {
	provider, directory := standin(t)
	fault(t, directory, "tuned", "")
	ports, err := provider.Ports()
	if err != nil || len(ports) == 0 {
		t.Fatalf("ports %v, error %v", ports, err)
	}
	at := verbs.Place{Port: ports[0], GID: ports[0].GIDs[0]}
	at.MTU = 1024
	p, err := provider.Open(at, verbs.Size{Ring: 64 << 10, Depth: 4})
	must.Do(t, err)
	t.Cleanup(func() { p.Close() })
	tuning, err := verbs.ParseTuning("class=106,hops=3,timeout=10,retries=4,rnr=2")
	must.Do(t, err)
	must.Do(t, errors.Join(p.Receive(4), p.Connect(1, p.End(), tuning)))
	got, err := os.ReadFile(filepath.Join(directory, "tuned"))
	if want := fmt.Sprintf("106 3 1024 %d\n10 4 2 0\n", at.GID.Index); err != nil || string(got) != want {
		t.Errorf("%q, error %v, want %q", got, err, want)
	}
}

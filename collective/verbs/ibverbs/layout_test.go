//go:build rdma

package ibverbs

import (
	"bytes"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gorun/collective/verbs"
	"gorun/contrib/must"
)

// constants returns the constants of layout.go.
func constants(t *testing.T) map[string]string {
	t.Helper()
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "layout.go", nil, 0)
	must.Do(t, err)
	info := types.Info{Defs: map[*ast.Ident]types.Object{}}
	if _, err := new(types.Config).Check("ibverbs", fset, []*ast.File{file}, &info); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, object := range info.Defs {
		if c, ok := object.(*types.Const); ok && c.Val().Kind() == constant.Int {
			found[c.Name()] = c.Val().ExactString()
		}
	}
	return found
}

// numbers are those of the library that package verbs knows.
var numbers = map[string]int{
	"StatusLength": verbs.StatusLength, "StatusOperation": verbs.StatusOperation, "StatusProtection": verbs.StatusProtection,
	"StatusFlushed": verbs.StatusFlushed, "StatusResponse": verbs.StatusResponse, "StatusAccess": verbs.StatusAccess,
	"StatusRemoteRequest": verbs.StatusRemoteRequest, "StatusRemoteAccess": verbs.StatusRemoteAccess,
	"StatusRemote": verbs.StatusRemote, "StatusRetries": verbs.StatusRetries, "StatusNotReady": verbs.StatusNotReady,
	"StatusAborted": verbs.StatusAborted, "StatusFatal": verbs.StatusFatal, "StatusTime": verbs.StatusTime,
	"StatusGeneral": verbs.StatusGeneral, "EventQueue": verbs.EventQueue, "EventPair": verbs.EventPair,
	"EventPairRequest": verbs.EventPairRequest, "EventPairAccess": verbs.EventPairAccess, "EventDevice": verbs.EventDevice,
	"EventPort": verbs.EventPort, "EventLID": verbs.EventLID, "EventGID": verbs.EventGID,
}

// Every constant of layout.go, and every status and event of package verbs, is what a C compiler finds in the headers of libibverbs.
func TestLayout(t *testing.T) {
	if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
		t.Skip("no headers of libibverbs: apt-get install libibverbs-dev")
	}
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler")
	}
	program := filepath.Join(t.TempDir(), "layout")
	if out, err := exec.Command(compiler, "-o", program, "testdata/layout.c").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.Command(program).Output()
	must.Do(t, err)
	want := constants(t)
	delete(want, "portAttrSize") // ours is larger
	for name, value := range numbers {
		want[name] = strconv.Itoa(value)
	}
	for line := range bytes.Lines(out) {
		name, value, _ := strings.Cut(strings.TrimSpace(string(line)), " ")
		switch {
		case name == "portAttrFits":
			if value != "1" {
				t.Error("ibv_port_attr does not fit")
			}
		case want[name] != value:
			t.Errorf("%s is %q here, %s in the headers", name, want[name], value)
		}
		delete(want, name)
	}
	for name := range want {
		t.Errorf("%s is not checked", name)
	}
}

func TestMTU(t *testing.T) {
	for bytes, want := range map[int]int{0: 256, 256: 256, 1024: 1024, 1500: 1024, 4096: 4096, 9000: 4096} {
		if got := mtuBytes(mtuEnum(bytes)); got != want {
			t.Errorf("%d bytes become %d, want %d", bytes, got, want)
		}
	}
}

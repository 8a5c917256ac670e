package kvhttp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"gorun/rendezvous/kvhttp"
)

func TestMain(m *testing.M) {
	// net/http gives a client that it refused half a second to read why; no test can wait for that.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// serve starts a store and returns its address.
func serve(t *testing.T, allow func(netip.Addr) bool) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- kvhttp.New(allow).Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func loopback(a netip.Addr) bool { return a.IsLoopback() }

func do(t *testing.T, method, url, body string) (int, string, int64) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b), resp.ContentLength
}

func TestProtocol(t *testing.T) {
	url := "http://" + serve(t, loopback)
	for i, x := range []struct {
		method, path, body string
		status             int
		want               string
	}{
		{"GET", "/global/0", "", 404, ""},
		{"PUT", "/global/0", "", 200, ""},
		{"GET", "/global/0", "", 200, ""}, // a world of one rank: empty, but there
		{"PUT", "/global/1", "\x00\xff blob", 200, ""},
		{"GET", "/global/1", "", 200, "\x00\xff blob"},
		{"PUT", "/global/1", "new", 200, ""},
		{"GET", "/global/1", "", 200, "new"},
		{"GET", "/local_host1/1", "", 404, ""},
		{"DELETE", "/global/1", "", 200, ""},
		{"GET", "/global/1", "", 200, "new"},
		{"GET", "/global", "", 400, ""},
		{"GET", "/", "", 400, ""},
		{"POST", "/global/1", "x", 405, ""},
		{"PUT", "/global/2", strings.Repeat("x", 1<<20+1), 413, ""},
		{"GET", "/global/2", "", 404, ""},
	} {
		status, body, length := do(t, x.method, url+x.path, x.body)
		if status != x.status || body != x.want || status == 200 && length != int64(len(body)) {
			t.Errorf("%d: %s %s: %d %q, length %d; want %d %q", i, x.method, x.path, status, body, length, x.status, x.want)
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	url := "http://" + serve(t, loopback)
	large := strings.Repeat("x", 1<<20)
	refused := false
	for i := range 300 {
		status, _, _ := do(t, "PUT", fmt.Sprintf("%s/s/%d", url, i), large)
		if refused = status != 200; refused {
			break
		}
	}
	if !refused {
		t.Error("300 MiB were taken")
	}
}

func TestStrangersAreNotHeard(t *testing.T) {
	addr := serve(t, func(a netip.Addr) bool { return a.String() == "192.0.2.1" })
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "GET /global/0 HTTP/1.1\r\nHost: x\r\n\r\n")
	b, _ := io.ReadAll(c) // reset or ended
	if !bytes.Equal(b, nil) {
		t.Errorf("a stranger got %q", b)
	}
}

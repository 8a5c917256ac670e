package kvhttp_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"gorun/collective/admit/admittest"
	"gorun/contrib/must"
	"gorun/rendezvous/kvhttp"
)

func TestMain(m *testing.M) {
	// net/http gives a client that it refused half a second to read why; no test can wait for that.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

func seal(t *testing.T, key string) *tls.Config {
	t.Helper()
	config, err := kvhttp.Seal([]byte(strings.Repeat(key, 32)))
	must.Do(t, err)
	return config
}

// serve starts a store and returns its address, and a client with its key.
func serve(t *testing.T) (string, *http.Client) {
	t.Helper()
	l := must.Listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- kvhttp.New().Serve(ctx, l, seal(t, "k")) }()
	client := kvhttp.Client(seal(t, "k"))
	t.Cleanup(func() {
		client.CloseIdleConnections()
		cancel()
		must.Report(t, <-done)
	})
	return l.Addr().String(), client
}

func do(t *testing.T, client *http.Client, method, url, body string) (int, string, int64) {
	t.Helper()
	req, err := http.NewRequest(method, url, strings.NewReader(body))
	must.Do(t, err)
	resp, err := client.Do(req)
	must.Do(t, err)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	must.Do(t, err)
	return resp.StatusCode, string(b), resp.ContentLength
}

func TestProtocol(t *testing.T) {
	addr, client := serve(t)
	url := "https://" + addr
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
		status, body, length := do(t, client, x.method, url+x.path, x.body)
		if status != x.status || body != x.want || status == 200 && length != int64(len(body)) {
			t.Errorf("%d: %s %s: %d %q, length %d; want %d %q", i, x.method, x.path, status, body, length, x.status, x.want)
		}
	}
}

func TestMemoryIsBounded(t *testing.T) {
	addr, client := serve(t)
	url := "https://" + addr
	large := strings.Repeat("x", 1<<20)
	refused := false
	for i := range 300 {
		status, _, _ := do(t, client, "PUT", fmt.Sprintf("%s/s/%d", url, i), large)
		if refused = status != 200; refused {
			break
		}
	}
	if !refused {
		t.Error("300 MiB were taken")
	}
}

// TestHostileStore: whoever lacks the job's key is not heard, at whatever address, and keeps no host of the job out.
func TestHostileStore(t *testing.T) {
	addr, client := serve(t)
	c := must.Dial(t, addr)
	defer c.Close()
	fmt.Fprint(c, "PUT /global/0 HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\nx")
	if b, _ := io.ReadAll(c); bytes.Contains(b, []byte("200")) {
		t.Errorf("a stranger got %q", b)
	}
	other := kvhttp.Client(seal(t, "o"))
	if answer, err := other.Get("https://" + addr + "/global/0"); err == nil {
		answer.Body.Close()
		t.Errorf("with the key of another job: %s", answer.Status)
	}
	if status, _, _ := do(t, client, "GET", "https://"+addr+"/global/0", ""); status != 404 {
		t.Errorf("of what nobody of the job stored: %d", status)
	}
	client.CloseIdleConnections()
	admittest.Flood(t, addr, 300, "")
	admittest.Flood(t, addr, 300, "\x16\x03\x01")
	if status, _, _ := do(t, client, "PUT", "https://"+addr+"/global/0", "value"); status != 200 {
		t.Errorf("a host of the job: %d", status)
	}
}

// TestHostileUserOfTheHost: another user of a rank's host is not answered in place of the rank.
func TestHostileUserOfTheHost(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can connect as another user")
	}
	store, client := serve(t)
	l := must.Listen(t)
	ctx, cancel := context.WithCancel(t.Context())
	var refused atomic.Int32
	m := kvhttp.NewMember(client, kvhttp.StockPlace{Store: store}, nil)
	done := make(chan error, 1)
	go func() { done <- m.Serve(ctx, l, func(error) { refused.Add(1) }) }()
	defer func() {
		cancel()
		must.Report(t, <-done)
	}()
	ask := func(conn net.Conn) string {
		fmt.Fprint(conn, "GET /global/0 HTTP/1.0\r\n\r\n")
		b, _ := io.ReadAll(conn)
		return string(b)
	}
	if got := ask(admittest.As(t, 12345, l.Addr().String())); got != "" || refused.Load() != 1 {
		t.Errorf("another user got %q, %d refused", got, refused.Load())
	}
	if got := ask(admittest.As(t, os.Getuid(), l.Addr().String())); !strings.Contains(got, "404") {
		t.Errorf("the rank got %q", got)
	}
}

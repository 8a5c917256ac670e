package kvhttp

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"gorun/contrib/must"
)

// recorded is what stock Horovod 0.28.1 sent: one interface, and two with three addresses.
var recorded = []string{
	"gAWVRAAAAAAAAAB9lIwEZXRoMJRdlIwJMTAuNzcuMC4xlE27nIaUYXNDIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4flIaULg==",
	"gAWVYQAAAAAAAAB9lCiMBGV0aDCUXZQojAkxMC43Ny4wLjGUTbuchpRoBGWMAmxvlF2UjAkxMjcuMC4wLjGUTbuchpRhdUMgAAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh+UhpQu",
}

func TestParseAddresses(t *testing.T) {
	key := make([]byte, 32)
	for i := range key {
		key[i] = byte(i)
	}
	for _, text := range recorded {
		l, err := parseAddresses([]byte(text))
		if err != nil || l.port != 40123 || !bytes.Equal(l.key, key) {
			t.Errorf("%s: %+v, %v", text, l, err)
		}
	}
	evil := base64.StdEncoding.EncodeToString([]byte("cos\nsystem\n(X\x04\x00\x00\x00trueetR."))
	for _, text := range []string{"", "*", "gAWV", recorded[0][:80], evil} {
		if l, err := parseAddresses([]byte(text)); err == nil {
			t.Errorf("%q: %+v", text, l)
		}
	}
}

func FuzzParseAddresses(f *testing.F) {
	for _, text := range recorded {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if l, err := parseAddresses(text); err == nil && (l.port < 1 || l.port > 65535 || len(l.key) != keySize) {
			t.Errorf("%q: %+v", text, l)
		}
	})
}

// TestHostsUpdated compares with what Horovod's own driver sends; Python read it as timestamp 7, res 3.
func TestHostsUpdated(t *testing.T) {
	want := "\x80\x02chorovod.runner.elastic.worker\nHostsUpdatedRequest\n)\x81}(X\t\x00\x00\x00timestamp\x8a\x08\x07\x00\x00\x00\x00\x00\x00\x00X\x03\x00\x00\x00resK\x03ub."
	if got := hostsUpdated(7, true, true); string(got) != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// rank is stock Horovod's side of the dialogue.
type rank struct {
	t    *testing.T
	addr string
}

func (r rank) do(method, path, body string) (int, string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), method, "http://"+r.addr+path, strings.NewReader(body))
	must.Do(r.t, err)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	answer, err := client.Do(req)
	must.Do(r.t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must.Do(r.t, err)
	if answer.StatusCode == 200 && answer.ContentLength != int64(len(text)) {
		r.t.Errorf("%s %s: Content-Length %d for %d bytes", method, path, answer.ContentLength, len(text))
	}
	return answer.StatusCode, string(text)
}

// TestMember is the life of a rank: it meets others in one world, hears of others, leaves, gets its next place when
// there is one, and meets others there, where nothing of the first world is left.
func TestMember(t *testing.T) {
	listen := func() net.Listener {
		l := must.Listen(t)
		return l
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	store, door, news := listen(), listen(), listen()
	defer news.Close()
	seal, err := Seal(make([]byte, 32))
	must.Do(t, err)
	client := Client(seal)
	defer client.CloseIdleConnections()
	go func() { ended <- New().Serve(ctx, store, seal) }()
	next := make(chan StockPlace)
	m := NewMember(client, StockPlace{Epoch: 1, Store: store.Addr().String()}, func(ctx context.Context) (StockPlace, error) {
		select {
		case p := <-next:
			return p, nil
		case <-ctx.Done():
			return StockPlace{}, context.Cause(ctx)
		}
	})
	go func() { ended <- m.Serve(ctx, door, func(err error) { t.Error(err) }) }()
	r := rank{t, door.Addr().String()}

	long := strings.Repeat("x", 5000) // the addresses of many pairs
	for key, value := range map[string]string{"rank_0": "host1", "0": long, "1": ""} {
		if code, _ := r.do("PUT", "/global/"+key, value); code != 200 {
			t.Errorf("PUT %s: %d", key, code)
		}
		if code, got := r.do("GET", "/global/"+key, ""); code != 200 || got != value {
			t.Errorf("GET %s: %d, %d bytes", key, code, len(got))
		}
	}
	if code, _ := r.do("GET", "/global/7", ""); code != 404 {
		t.Errorf("what nobody stored: %d", code)
	}
	if code, _ := r.do("PUT", "/worker_addresses/host1:0", "cos"); code != 400 {
		t.Errorf("a bad pickle: %d", code)
	}

	// The rank sends where it listens; the answer carries its key.
	port := news.Addr().(*net.TCPAddr).Port
	place, err := base64.StdEncoding.DecodeString(recorded[0])
	must.Do(t, err)
	at := bytes.Index(place, []byte{'M', 0xbb, 0x9c})
	binary.LittleEndian.PutUint16(place[at+1:], uint16(port))
	world, over := context.WithCancel(ctx)
	announced := make(chan struct{})
	go func() { m.Announce(world, 3, true, false); close(announced) }()
	if code, _ := r.do("PUT", "/worker_addresses/host1:0", base64.StdEncoding.EncodeToString(place)); code != 200 {
		t.Errorf("where it listens: %d", code)
	}
	conn, err := news.Accept()
	must.Do(t, err)
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	head := make([]byte, 36)
	if _, err := io.ReadFull(conn, head); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.LittleEndian.Uint32(head[32:]))
	if _, err := io.ReadFull(conn, body); err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, place[len(place)-36:len(place)-4])
	mac.Write(body)
	if !bytes.Equal(mac.Sum(nil), head[:32]) || !bytes.Equal(body, hostsUpdated(3, true, false)) {
		t.Errorf("it hears %q under %x", body, head[:32])
	}
	conn.Close()

	// It asks for its next place before there is one.
	type answer struct {
		code int
		text string
	}
	moved := make(chan answer)
	go func() {
		code, text := r.do("GET", "/rank_and_size/host1:0", "")
		moved <- answer{code, text}
	}()
	next <- StockPlace{1, 3, 0, 1, 1, 3, 2, store.Addr().String()}
	if got := <-moved; got != (answer{200, "1,3,0,1,1,3"}) {
		t.Errorf("its next place: %v", got)
	}
	over()
	<-announced
	if code, _ := r.do("GET", "/global/rank_0", ""); code != 404 {
		t.Errorf("the second world has what the first stored: %d", code)
	}
	if code, _ := r.do("DELETE", "/global/1", ""); code != 200 {
		t.Errorf("DELETE: %d", code)
	}
	cancel()
	for range 2 {
		must.Report(t, <-ended)
	}
	if s := fmt.Sprint(m.client.Timeout); s == "0s" {
		t.Error("it waits for a lost store for ever")
	}
}

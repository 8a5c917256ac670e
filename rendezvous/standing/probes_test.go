package standing

import (
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"

	"gorun/collective/admit"
	"gorun/contrib/must"
)

// TestProbes: a connection that closes without a byte is not counted as refused, unlike one that speaks or is kept open.
func TestProbes(t *testing.T) {
	key, err := ParseKey([]byte(aKey))
	must.Do(t, err)
	channel, err := key.channel()
	must.Do(t, err)
	for name, tt := range map[string]struct {
		client  func(net.Conn)
		refused uint64
	}{
		"probe": {func(c net.Conn) { c.Close() }, 0},
		"other protocol": {func(c net.Conn) {
			io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
			io.Copy(io.Discard, c)
		}, 1},
		"breaks off": {func(c net.Conn) {
			io.WriteString(c, "\x16")
			c.Close()
		}, 1},
		"silent": {func(c net.Conn) { io.Copy(io.Discard, c) }, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{cfg: Config{Log: slog.New(slog.DiscardHandler)}, channel: channel}
			ours, theirs := net.Pipe()
			go tt.client(ours)
			s.meet(t.Context(), (&admit.Door{Timeout: handshakeTimeout}).Enter(theirs))
			theirs.Close()
			got := s.journal.refused
			if noted := s.journal.requests[Request{"connect", "refused"}]; got != tt.refused || noted != tt.refused {
				t.Errorf("%s: counted %d times and noted %d times, want %d", name, got, noted, tt.refused)
			}
		})
	}
}

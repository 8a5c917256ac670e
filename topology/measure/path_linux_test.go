package measure

import (
	"net"
	"testing"

	"gorun/contrib/must"
)

// TestPackets go to this machine itself, whose loopback takes every size; what is lost on other ways is seen in
// TestDoctorNamesFaults. Nobody asks until all are sent, the kernel's buffer has no room for them, and some are of other jobs.
func TestPackets(t *testing.T) {
	key := Key([]byte("secret"), 1)
	for _, to := range []string{"127.0.0.1", "::1"} {
		conn, err := net.ListenUDP("udp", nil)
		must.Do(t, err)
		defer conn.Close()
		conn.SetReadBuffer(48 << 10)
		come := make(chan packet, received)
		go drain(t.Context(), conn, come) // until it is closed
		_, port, _ := net.SplitHostPort(conn.LocalAddr().String())
		addr := net.JoinHostPort(to, port)
		for asked, want := range map[int]int{1500: 1500, 9000: 9000, 600: 600, 65536: 9000} {
			must.Do(t, send(t.Context(), addr, key, asked))
			if got := receive(come, key); got.Arrive != want || got.Lost != 0 {
				t.Errorf("packets of %d bytes to %s: %+v", asked, to, got)
			}
		}
		must.Do(t, send(t.Context(), addr, Key([]byte("other"), 1), 1500))
		if got := receive(come, key); got.Arrive != 0 || got.Lost != 1 {
			t.Errorf("packets of another key: %+v", got)
		}
	}
}

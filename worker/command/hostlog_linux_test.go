package command

import (
	"net"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"gorun/contrib/must"
)

// TestReport: a line reaches the log of the host as syslogd expects it; where there is none nothing happens.
func TestReport(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "log")
	report(socket, "to nobody")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	must.Do(t, err)
	defer l.Close()
	report(socket, "job x: its ranks on this host are ended")
	l.SetReadDeadline(time.Now().Add(10 * time.Second))
	buf := make([]byte, 1000)
	n, err := l.Read(buf)
	if want := regexp.MustCompile(`^<28>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d gorun\[\d+\]: job x: its ranks on this host are ended$`); err != nil || !want.Match(buf[:n]) {
		t.Errorf("read %q, %v", buf[:n], err)
	}
}

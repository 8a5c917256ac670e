package ssh

import (
	"bufio"
	"strings"
	"testing"
)

// FuzzMarkers: what a host prints before and instead of our script's answers is skipped, bounded, and never taken for one
// without the nonce.
func FuzzMarkers(f *testing.F) {
	f.Add("motd\r\n"+marker+" n READY\n", "n")
	f.Add(marker+" x NEED 1\n"+marker+" n\n"+marker+" n FAIL place /a b\n", "n")
	f.Add(strings.Repeat("z", 5000)+marker+" n READY\n", "n")
	f.Fuzz(func(t *testing.T, text, nonce string) {
		verb, detail, err := nextMarker(bufio.NewReader(strings.NewReader(text)), nonce)
		if err == nil && !strings.Contains(text, strings.TrimSpace(marker+" "+nonce+" "+verb)) {
			t.Fatalf("%q %q of %q", verb, detail, text)
		}
		if e := failure(detail); strings.ContainsAny(e.Err.Error(), "\n\r") {
			t.Fatalf("%q", e.Err)
		}
		if last := lastLine(readTail(strings.NewReader(text))); strings.ContainsAny(last, "\n\r") {
			t.Fatalf("%q", last)
		}
	})
}

package link

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"gorun/collective/admit"
	"gorun/contrib/must"
)

// TestProtocol checks the tables of PROTOCOL.md against the code.
func TestProtocol(t *testing.T) {
	b, err := os.ReadFile("PROTOCOL.md")
	must.Do(t, err)
	text := string(b)
	magic := func(n uint32) string { return string([]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)}) }
	want := []string{
		fmt.Sprintf("# The link protocol, version %d\n", protoVersion),
		fmt.Sprintf("| 0 | u32 magic | `%s` |", magic(introMagic)),
		fmt.Sprintf("| 4 | u8 version | %d |", protoVersion),
		fmt.Sprintf("| hello | dialer | introduction, %d bytes |", introSize),
		fmt.Sprintf("| challenge | acceptor | introduction, %d bytes, and the acceptor's proof, %d bytes |", introSize, challengeSize-introSize),
		fmt.Sprintf("| %d | map |", resumeSize),
		fmt.Sprintf("a header of %d bytes", headerSize),
		fmt.Sprintf("a tag of %d bytes", tagSize),
		fmt.Sprintf("records of at most %d KiB", recordSize>>10),
		fmt.Sprintf("at most %d KiB", messageSize>>10),
		fmt.Sprintf("at most %d MiB |", MaxPayload>>20),
	}
	for _, f := range []struct {
		offset int
		field  string
	}{
		{offKind, "u8 kind"}, {offFlags, "u8 flags"}, {offStep, "u16 step"}, {offEpoch, "u32 epoch"}, {offGen, "u32 gen"},
		{offOp, "u64 op"}, {offOffset, "u64 offset"}, {offLength, "u32 length"}, {offSeq, "u64 seq"},
		{offAck, "u64 ack"}, {offSack, "u32 sack"},
	} {
		want = append(want, fmt.Sprintf("| %d | %s |", f.offset, f.field))
	}
	for name, kind := range map[string]SegmentKind{"Data": Data, "Control": Control, "kindAck": kindAck} {
		want = append(want, fmt.Sprintf("| %d | %s |", kind, name))
	}
	for name, flag := range map[string]uint8{"FlagAckNow": FlagAckNow, "FlagCheck": FlagCheck, "flagChecked": flagChecked} {
		want = append(want, fmt.Sprintf("| %d | %s |", flag, name))
	}
	for _, line := range want {
		if !strings.Contains(text, line) {
			t.Errorf("PROTOCOL.md lacks %q", line)
		}
	}
	cfg := Config{Key: make([]byte, 32), Handler: &nowhere{}}
	must.Do(t, cfg.fill())
	for _, line := range []string{
		fmt.Sprintf("within %.0f seconds, and at most %d unauthenticated", cfg.HandshakeTimeout.Seconds(), admit.All),
		fmt.Sprintf("after %d segments, %d MiB or %d ms", cfg.AckSegments, cfg.AckBytes>>20, cfg.AckDelay.Milliseconds()),
	} {
		if !strings.Contains(text, line) {
			t.Errorf("PROTOCOL.md lacks %q", line)
		}
	}
}

// nowhere is a Handler that refuses everything.
type nowhere struct{}

func (*nowhere) Place(int, Header) ([]byte, error) { return nil, os.ErrInvalid }
func (*nowhere) Deliver(int, Header, []byte)       {}

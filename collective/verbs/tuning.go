package verbs

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Tuning is what users choose for queue pairs.
type Tuning struct {
	GID  int // index in the port's table, -1 for the entry with the connection's address
	RoCE int // version: 1 or 2, 0 for 2 where this host has it, which must go for both ends
	MTU  int // at most, in bytes

	// Timeout is how long the device waits for an acknowledgement: 4.096 µs times two to the power of Timeout. Retries is
	// how often it repeats what was not acknowledged, and RNR how often it repeats what the peer was not ready for.
	Timeout, Retries, RNR int
	TrafficClass          int
	HopLimit              int

	// Rest is how long a stream stays on TCP after the second queue pair in a row that failed soon. It doubles with each
	// further one, up to mostRests times.
	Rest time.Duration
}

const mostRests = 30

// DefaultTuning has devices give up after half a second, sooner than the link replaces a stream that makes no progress.
// A machine that is paused for longer loses its queue pairs, not its data.
var DefaultTuning = Tuning{GID: -1, MTU: 4096, Timeout: 14, Retries: 7, RNR: 7, HopLimit: 64, Rest: time.Second}

// mtus are the packet sizes of RDMA, in bytes.
var mtus = []int{256, 512, 1024, 2048, 4096}

// ParseTuning returns the defaults with what a text changes: "gid=3,mtu=1024,class=106".
func ParseTuning(text string) (Tuning, error) {
	t := DefaultTuning
	numbers := map[string]struct {
		to          *int
		least, most int
	}{
		"gid": {&t.GID, 0, 255}, "roce": {&t.RoCE, 1, 2}, "mtu": {&t.MTU, 256, 4096},
		"timeout": {&t.Timeout, 1, 31}, "retries": {&t.Retries, 0, 7}, "rnr": {&t.RNR, 0, 7},
		"class": {&t.TrafficClass, 0, 255}, "hops": {&t.HopLimit, 1, 255},
	}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		number, known := numbers[name]
		switch {
		case name == "":
		case name == "rest":
			d, err := time.ParseDuration(value)
			if err != nil || d < time.Millisecond || d > time.Hour {
				return t, fmt.Errorf("rest=%s: not a duration from 1ms to 1h, such as 1s", value)
			}
			t.Rest = d
		case name == "unencrypted":
			return t, errors.New("unencrypted: there is no such option any more, --encrypt encrypts what goes over RDMA too")
		case !known:
			return t, fmt.Errorf("%s: none of gid, roce, mtu, class, hops, timeout, retries, rnr and rest", name)
		default:
			n, err := strconv.Atoi(value)
			if name == "mtu" && !slices.Contains(mtus, n) {
				return t, fmt.Errorf("mtu=%s: must be 256, 512, 1024, 2048 or 4096", value)
			}
			if err != nil || n < number.least || n > number.most {
				return t, fmt.Errorf("%s=%s: must be %d to %d", name, value, number.least, number.most)
			}
			*number.to = n
		}
	}
	return t, nil
}

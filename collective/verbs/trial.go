package verbs

import "time"

// trial decides when a stream goes over RDMA. It is pure.
type trial struct {
	least, most time.Duration // how long a stream stays on TCP: see Tuning.Rest

	began    time.Duration // when the last attempt succeeded
	failures int           // in a row
	until    time.Duration // no attempt before that
}

// A queue pair that carries a stream for steady clears the failures before it. A queue pair that
// breaks is replaced at once. If the next one fails sooner than steady, the stream stays on TCP, for a time that
// doubles with each such failure.
const steady = 10 * time.Second

// wants reports whether to attempt RDMA now.
func (t *trial) wants(now time.Duration) bool { return now >= t.until }

// worked records that a queue pair carries the stream.
func (t *trial) worked(now time.Duration) { t.began = now }

// failed records that a queue pair has broken or could not be made. It returns how long the stream stays on TCP.
func (t *trial) failed(now time.Duration) (rest time.Duration) {
	if t.began > 0 && now-t.began >= steady {
		t.failures = 0
	}
	if t.failures++; t.failures > 1 {
		rest = min(t.least<<min(t.failures-2, 16), t.most)
	}
	t.began, t.until = 0, now+rest
	return rest
}

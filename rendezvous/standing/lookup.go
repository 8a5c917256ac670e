package standing

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// redirects is how many times in a row a launcher is redirected before it pauses. The queue moves only when hosts
	// join or leave.
	redirects = 8
	// lookupTimeout is how long a cluster may be without a queue holder. Its hosts give up a silent one after 30 s.
	lookupTimeout = time.Minute
)

// lookup finds the daemon that holds the queue. It only decides.
type lookup struct {
	known    []string  // addresses of daemons, the one the user gave first
	at       string    // the address to ask now
	met      bool      // there is a cluster: a daemon has answered
	since    time.Time // the first failure after that; zero while the job is in the queue
	sends    int       // redirects in a row
	keeps    string    // the last known queue holder
	reported string    // the queue holder whose loss was reported
}

func newLookup(addr string) *lookup { return &lookup{known: []string{addr}, at: addr} }

// queued records that the job is in the queue, and other addresses of the cluster.
func (q *lookup) queued(others []string) {
	q.met, q.keeps, q.since, q.sends, q.reported = true, q.at, time.Time{}, 0, ""
	q.known = slices.Concat(q.known[:1], slices.DeleteFunc(slices.Clone(others), func(a string) bool { return a == q.known[0] }))
}

// sent records a redirect to another queue holder. It returns whether to pause before asking that one, and an error
// when the daemons have disagreed for too long.
func (q *lookup) sent(now time.Time, to string) (rest bool, err error) {
	q.met, q.keeps, q.at = true, to, to
	q.sends++
	if q.sends%redirects != 0 {
		return false, nil
	}
	return true, q.failure(now, errors.New("the daemons do not agree on who keeps the queue"))
}

// failed records that the daemon at hand cannot be reached. That is final unless another daemon redirected the launcher
// to it, or the job was in the queue: then a new queue holder will appear. It returns what to report about that, if it
// is new.
func (q *lookup) failed(now time.Time, err error) (text string, final error) {
	_, refused := errors.AsType[*RefusedError](err)
	if refused || errors.Is(err, ErrKey) || !q.met {
		return "", err
	}
	if err := q.failure(now, err); err != nil {
		return "", err
	}
	if q.at == q.keeps && q.at != q.reported {
		q.reported = q.at
		text = fmt.Sprintf("waits for another daemon to keep the queue: that at %s cannot be reached", q.at)
	}
	q.at = q.known[(slices.Index(q.known, q.at)+1)%len(q.known)]
	return text, nil
}

// failure returns err once there has been no queue for too long.
func (q *lookup) failure(now time.Time, err error) error {
	if q.since.IsZero() {
		q.since = now
	}
	if now.Sub(q.since) >= lookupTimeout {
		return err
	}
	return nil
}

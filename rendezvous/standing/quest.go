package standing

import (
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	// redirects is how often a launcher is sent elsewhere until it waits a moment: the queue moves only when hosts come and go.
	redirects = 8
	// leaderless is how long a cluster may be without anybody who keeps the queue. Its hosts give a silent one up after 30 s.
	leaderless = time.Minute
)

// quest looks for whoever keeps the queue. It only decides.
type quest struct {
	known []string  // the addresses of daemons, first the one that the user has named
	at    string    // who is asked
	met   bool      // there is a cluster: somebody has answered
	since time.Time // when it was first in vain after that; zero while the job is in the queue
	sends int       // elsewhere, in a row
	keeps string    // who kept the queue last
	told  string    // of whom it was told that it cannot be reached
}

func newQuest(addr string) *quest { return &quest{known: []string{addr}, at: addr} }

// queued says that the job is in the queue, with where else the cluster can be asked.
func (q *quest) queued(others []string) {
	q.met, q.keeps, q.since, q.sends, q.told = true, q.at, time.Time{}, 0, ""
	q.known = slices.Concat(q.known[:1], slices.DeleteFunc(slices.Clone(others), func(a string) bool { return a == q.known[0] }))
}

// sent says that another one keeps the queue, to whoever was asked. It returns whether to wait before that one is asked; not
// for ever, for they may not agree.
func (q *quest) sent(now time.Time, to string) (rest bool, err error) {
	q.met, q.keeps, q.at = true, to, to
	q.sends++
	if q.sends%redirects != 0 {
		return false, nil
	}
	return true, q.inVain(now, errors.New("the daemons do not agree on who keeps the queue"))
}

// failed says that whoever was asked cannot be. That is the end unless others have sent the launcher there, or the job was in the
// queue: then another one will keep it. It returns what there is to tell of that, if it is new.
func (q *quest) failed(now time.Time, err error) (text string, final error) {
	_, refused := errors.AsType[*RefusedError](err)
	if refused || errors.Is(err, ErrKey) || !q.met {
		return "", err
	}
	if err := q.inVain(now, err); err != nil {
		return "", err
	}
	if q.at == q.keeps && q.at != q.told {
		q.told = q.at
		text = fmt.Sprintf("waits for another daemon to keep the queue: that at %s cannot be reached", q.at)
	}
	q.at = q.known[(slices.Index(q.known, q.at)+1)%len(q.known)]
	return text, nil
}

// inVain returns err when there has been no queue for too long.
func (q *quest) inVain(now time.Time, err error) error {
	if q.since.IsZero() {
		q.since = now
	}
	if now.Sub(q.since) >= leaderless {
		return err
	}
	return nil
}

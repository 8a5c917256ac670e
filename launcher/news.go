package launcher

import (
	"time"
)

// tellLost notifies the user of a rank that failed in a job that goes on.
func (j *job) tellLost(process int) {
	failure := j.change.failures[process]
	if failure == nil {
		return
	}
	if failure.Signal == 0 {
		j.change.mistake = time.Now()
	}
	j.spec.Note("gorun: %v", failure)
	for _, line := range j.spec.Output.Tail(process) {
		j.spec.Note("    %s", line)
	}
}

// doomed is a world that may not last: a mistake of the script ends one process after the other, and those that are left are in another
// world each time, until none is. Nobody wants to read of these.
type doomed struct {
	at   time.Time
	text string
}

// mistakeSpreads is how long after such an end users hear of the world that follows, if the job has not ended by then.
const mistakeSpreads = time.Second

// tellWorld tells of a world that has begun.
func (j *job) tellWorld(now time.Time, text string) {
	if !j.change.mistake.IsZero() && now.Sub(j.change.mistake) < mistakeSpreads {
		j.change.worlds = append(j.change.worlds, doomed{now, text})
		return
	}
	j.tellWorlds(time.Time{})
	j.spec.Note("%s", text)
}

// tellWorlds tells of the worlds that have lasted, or of all that nobody was told of, with the zero time.
func (j *job) tellWorlds(now time.Time) {
	for len(j.change.worlds) > 0 && !j.stopping {
		w := j.change.worlds[0]
		if !now.IsZero() && now.Sub(w.at) < mistakeSpreads {
			return
		}
		j.spec.Note("%s", w.text)
		j.change.worlds = j.change.worlds[1:]
	}
}

package launcher

import "time"

// FormAfter sets how long after the start of its last rank a job gets its world, if no rank asks.
func (s *Spec) FormAfter(d time.Duration) { s.formAfter = d }

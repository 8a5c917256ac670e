package failure

import (
	"strings"
	"testing"
)

// TestCause: of what a rank wrote last, the line that says why it ended is not always the last one.
func TestCause(t *testing.T) {
	const warning = "/train.py:15: UserWarning: something else\n  warnings.warn(\"something else\")\n"
	const trace = "Traceback (most recent call last):\n  File \"/train.py\", line 20, in <module>\n    step()\n"
	for _, c := range []struct {
		tail   string
		signal int
		want   string
	}{
		{trace + "ValueError: bad batch", 0, "ValueError: bad batch"},
		{trace + "OSError: [Errno 28] No space left on device\n\n", 0, "OSError: [Errno 28] No space left on device"},
		{trace + "RuntimeError: worker 0 of the data loader was killed by signal 9\nlost sys.stderr", 0, "RuntimeError: worker 0 of the data loader was killed by signal 9"},
		{trace + "KeyError: 3\n\nDuring handling of the above exception, another exception occurred:\n\n" + trace + "queue.Empty", 0, "queue.Empty"},
		{trace + "ValueError: bad batch\nException ignored in: <function f>\n" + trace + "TypeError: NoneType", 0, "ValueError: bad batch"},
		{trace + "ValueError: two\nlines\n" + warning, 0, "ValueError: two"},
		{warning, 0, ""}, // os._exit
		{warning, 11, ""},
		{warning + "step 3", 11, ""},
		{warning + "Fatal Python error: Segmentation fault\n\nThread 1 (most recent call first):\n  File \"/train.py\", line 3 in f\nExtension modules: numpy", 11, "Fatal Python error: Segmentation fault"},
		{"cannot open data\n", 0, "cannot open data"},
		{"cannot open data\n" + warning, 0, "cannot open data"},
		{"", 0, ""},
	} {
		e := &RankError{Signal: c.signal, Tail: strings.Split(c.tail, "\n")}
		if got := e.Cause(); got != c.want {
			t.Errorf("%q: %q, want %q", c.tail, got, c.want)
		}
	}
}

// TestHeadlineOfAll: where ranks disagree, it is chance which of them ends first, so the headline names those that do.
func TestHeadlineOfAll(t *testing.T) {
	e := &RankError{Rank: 2, Host: "a", Code: 1, Tail: []string{`  File "/train.py", line 20`,
		`gorun.exceptions.HorovodInternalError: allreduce "x": rank 0 on a submitted float32[4], rank 1 on b submitted float64[4]`}}
	if got := e.Error(); got != `rank 2 on a exited with status 1: allreduce "x": rank 0 on a submitted float32[4], rank 1 on b submitted float64[4]` {
		t.Error(got)
	}
}

package failure

import "strings"

// noThread begins the reason of a Go runtime that ends because the system gives it no thread.
const noThread = "runtime: failed to create new OS thread"

// threadHint names the limits of processes and threads.
const threadHint = "the limit of processes and threads is reached there: raise pids.max of its control group (TasksMax= in systemd, " +
	"--pids-limit of containers) or ulimit -u"

// LimitHint returns which limit to raise if a text says that the system has refused a process, a thread or an open
// file, "" otherwise.
func LimitHint(text string) string {
	has := func(words string) bool { return strings.Contains(text, words) }
	switch {
	case has("too many open files in system"):
		return "the limit of open files of the whole machine is reached: raise fs.file-max with sysctl"
	case has("too many open files"):
		return "the limit of open files is reached there: raise nofile (ulimit -n 65536, /etc/security/limits.d, LimitNOFILE= in systemd)"
	case has(noThread), has("newosproc"), has("fork/exec") && has("resource temporarily unavailable"), has(": resource temporarily unavailable") && has("could not start"):
		return threadHint
	}
	return ""
}

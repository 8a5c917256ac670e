//go:build !linux

package ssh

import "syscall"

// limitUnanswered leaves it to the keepalive where TCP_USER_TIMEOUT does not exist.
func limitUnanswered(_, _ string, _ syscall.RawConn) error { return nil }

//go:build !linux

package ssh

import "syscall"

// setSocketOptions does nothing where TCP_USER_TIMEOUT does not exist; the keepalive has to do.
func setSocketOptions(_, _ string, _ syscall.RawConn) error { return nil }

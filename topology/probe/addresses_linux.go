package probe

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// settleTime is how long addresses must be unchanged before they are read, because they change in several steps.
const settleTime = 20 * time.Millisecond

// WatchAddresses calls changed, on the caller's goroutine, whenever addresses or interfaces of this host may have
// changed. It returns at the end of ctx.
func WatchAddresses(ctx context.Context, changed func()) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("watch addresses: %w", err)
	}
	f := os.NewFile(uintptr(fd), "netlink")
	defer f.Close()
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR}); err != nil {
		return fmt.Errorf("watch addresses: %w", err)
	}
	defer context.AfterFunc(ctx, func() { f.SetReadDeadline(time.Unix(1, 0)) })()
	var pending bool
	buf := make([]byte, 16<<10)
	for ctx.Err() == nil {
		if pending {
			f.SetReadDeadline(time.Now().Add(settleTime))
			if ctx.Err() != nil {
				break
			}
		}
		// The content of a message does not matter; the loss of some (ENOBUFS) counts as one, too.
		_, err := f.Read(buf)
		switch {
		case ctx.Err() != nil:
		case os.IsTimeout(err):
			pending = false
			changed()
			f.SetReadDeadline(time.Time{})
			if ctx.Err() != nil { // which may have ended in between
				return nil
			}
		case err == nil || errors.Is(err, unix.ENOBUFS):
			pending = true
		default:
			return fmt.Errorf("watch addresses: %w", err)
		}
	}
	return nil
}

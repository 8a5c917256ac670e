package tcp

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

func (o *Options) set(fd int) error {
	// Not every kernel has every algorithm, and some lie behind a privilege; any will do.
	_ = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, congestion)
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout/time.Millisecond)); err != nil {
		return fmt.Errorf("set TCP_USER_TIMEOUT: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsent); err != nil {
		return fmt.Errorf("set TCP_NOTSENT_LOWAT: %w", err)
	}
	if o.Segment > 0 {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_MAXSEG, o.Segment); err != nil {
			return fmt.Errorf("set TCP_MAXSEG: %w", err)
		}
	}
	return nil
}

package command

import (
	"fmt"
	"net"
	"os"
	"time"
)

const (
	// priority is the number of a daemon's warning in RFC 3164.
	priority = 3<<3 | 4
	// reporting is how long the host's log may take for a line.
	reporting = time.Second
)

// report writes a line into the log of this host, which listens at a socket. Without a log it does nothing.
func report(socket, text string) {
	conn, err := net.DialTimeout("unixgram", socket, reporting)
	if err != nil {
		return
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(reporting))
	fmt.Fprintf(conn, "<%d>%s gorun[%d]: %s", priority, time.Now().Format(time.Stamp), os.Getpid(), text)
}

package main

import (
	"net"
	"strings"
)

// systemd is the socket at which systemd receives the state of a service of Type=notify; "" without systemd.
type systemd string

func (s systemd) say(state string) {
	if s == "" {
		return
	}
	name := string(s)
	if strings.HasPrefix(name, "@") {
		name = "\x00" + name[1:]
	}
	if conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"}); err == nil {
		conn.Write([]byte(state))
		conn.Close()
	}
}

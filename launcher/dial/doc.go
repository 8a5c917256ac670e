// Package dial starts daemons on hosts and carries on the conversations with them. It has the three Dialers of package
// launcher: Local starts a daemon as a child on the launcher's own machine, SSH logs in on a host and brings the binary
// where it is missing, and Cluster asks a resident daemon. A conversation over ssh is a line: when its connection breaks it
// logs in again, and goes on where it was (line.go).
package dial

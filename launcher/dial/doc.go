// Package dial starts daemons on hosts, and keeps the launcher connected with them. It has the three Dialers of package
// talk, which holds the conversations: Local starts a daemon as a child on the launcher's own machine, Remote has
// ssh or a scheduler's step start it and brings the binary where it is missing, and Cluster asks a resident daemon.
//
// A connection over ssh is a line: when it breaks, or is silent, the line logs in again and goes on where it was
// (line.go).
package dial

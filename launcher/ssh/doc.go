// Package ssh reaches the hosts of a job: it logs in the way the user's own ssh would and starts a daemon there,
// uploading the program if the host does not have it yet.
//
// A [Client] is shared by all hosts of a launch. It reads ssh_config, the agent, the key files and known_hosts once,
// keeps one connection to each bastion, and slows down when an sshd begins to drop connections. [Client.Connect]
// returns a [Conn]; [Conn.Bootstrap] makes sure the program is on the host and runs it, in one ssh session, with its
// standard input and output as a clean byte stream.
//
// Goroutines: a handshake runs in one goroutine that the Client owns, so that a stalled peer cannot hold up a cancelled
// caller; [Client.Close] waits for them. A Conn and a Session own none that outlive them.
//
// The package never asks for passwords, never opens a terminal, keeps no state except the known_hosts lines it accepts,
// and reads no environment but the variables that ssh_config names: the caller passes everything else in.
package ssh

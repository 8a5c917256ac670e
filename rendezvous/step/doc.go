// Package step connects a launcher with the hosts on which a scheduler's command, such as srun, has started gorun for
// it. Such a run of a command is a step, and its process on a host a step process.
//
// What a scheduler does with standard input and output differs, and srun shares them between all hosts. So they carry
// one line only: the Order, with a key and the addresses of the launcher. The step process connects to the launcher,
// both prove that they hold the key, and the process waits there for a command line. It runs that as a child, and the
// connection carries the child's standard streams and its exit status, as a login by ssh would. Before that it opens
// another connection, which waits for the next command line.
//
// Hub is the launcher's end, Serve the host's. The launcher never connects to a host: a scheduler's own command needs
// connections in this direction too, so a firewall lets them pass. A step process whose connection breaks connects
// again. It ends when the launcher orders that, or when the launcher cannot be reached and no child runs any more.
//
// A Hub has a goroutine for its listener and one for each connection, until Close. Serve returns when its children have
// ended.
package step

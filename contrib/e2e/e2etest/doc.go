// Package e2etest is what the end-to-end tests of the packages beside this one share. They run the built binary as users
// do: on the hosts of a lab (contrib/lab), over real ssh, and look at what it prints, how it ends and what it leaves.
//
//   - A [Cluster] is a lab with the binary at hand. [Cluster.Gorun] runs it to its end and then looks for leftovers on all
//     hosts; [Cluster.Command] prepares one for a test that disturbs it.
//   - A [Training] is an elastic job under way, of testdata/elastic: its output is a [Record], which a test waits on and
//     searches by patterns. A [HostFile] is its discovery script's.
//   - A [Descent] is a job whose weights show every wrong or lost byte.
//   - A [Lasting] cluster has a resident daemon on each host.
//   - An [SSHCluster] is one whose hosts and users' files a test may write to.
//   - A [Terminal] is one with a user at it.
//
// Every cluster has namespaces of its own, without names: its addresses, ports, host names and processes cannot meet
// those of another one, nor of another test process. So tests call [NewCluster], which has them run side by side, and
// packages do too. What they share is the machine's processors: tests that measure rates call [NewClusterAlone], and are
// all in package speed, which make runs when nothing else does.
package e2etest

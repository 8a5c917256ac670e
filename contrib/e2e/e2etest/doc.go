// Package e2etest supports the end-to-end tests in the packages beside it. They run the built binary as users do, on the
// hosts of a lab (contrib/lab) and over real ssh, and check its output, its exit status and what it leaves behind.
//
//   - A [Cluster] is a lab together with the binary. [Cluster.Gorun] runs it to its end and then checks for leftovers on all
//     hosts; [Cluster.Command] prepares a command for a test that disturbs it.
//   - A [Training] is a running elastic job of testdata/elastic: its output is a [Record], which a test waits on and
//     searches by patterns. Its discovery script prints a [HostFile].
//   - A [Descent] is a job whose weights show every wrong or lost byte.
//   - A [Lasting] cluster has a resident daemon on each host.
//   - An [SSHCluster] is a cluster in which a test may write users' files.
//   - A [Terminal] is a terminal with a simulated user.
//
// Every cluster has namespaces of its own, without names, so its addresses, ports, host names and processes do not conflict
// with another cluster's. So tests call [NewCluster], which runs them in parallel, and packages run in parallel too. They
// share only the machine's processors: tests that measure rates call [NewClusterAlone], and are all in package speed, which
// make runs by itself.
package e2etest

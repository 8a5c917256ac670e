// Package lab turns one Linux machine into several hosts, for tests, demos and benchmarks: each has its
// own address, processes, host name, home, /tmp and sshd, and they are joined by a bridge whose ports can
// be slowed down, cut and healed. The programs of the machine are visible on all of them.
//
// A lab is a tree of namespaces with one process at its root, the rack, that holds the bridge and waits
// for the end of its standard input. When the owner of the lab ends, even by kill -9, the rack ends too,
// and with it the kernel ends every process, interface and mount of the lab: nothing of it has a name
// outside. The first process of a host is its sshd; killing it kills the host.
//
// A Lab has one goroutine per running host, which waits for the host's end; Close waits for all of them.
// It needs root and Linux; Check reports what is missing. The lab separates hosts so that tests behave as on
// real ones. It does not protect against a hostile program: root on a host is root on the machine.
package lab

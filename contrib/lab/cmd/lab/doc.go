// Command lab makes hosts out of this machine, so that people can try gorun on several hosts without having them. Each
// host is a set of network namespaces with a name, an address and an sshd of its own; package contrib/lab makes it, for
// the end-to-end tests too. It needs Linux and root.
//
// Start with lab --help: its subcommands make a lab, run commands in it, and slow down or cut its links.
package main

// Package launch holds the end-to-end tests of starting and ending jobs: ssh in its many ways, logins that talk, hosts that
// fail before the world is formed, uploads, terminals, signals, output and what remains after all of it.
//
// A test makes hosts by e2etest.NewCluster, changes their sshd, login files or network, and compares the lines and the exit
// code of gorun. New tests of a job's first and last seconds belong here.
package launch

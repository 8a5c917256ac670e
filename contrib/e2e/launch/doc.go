// Package launch holds the end-to-end tests of starting and ending jobs: ssh in its many ways, logins that talk, hosts that
// fail before the world is formed, uploads, terminals, signals, output and what remains after all of it.
package launch

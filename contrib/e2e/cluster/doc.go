// Package cluster holds the end-to-end tests of resident daemons: their queue, upgrades, systemd, and jobs that outlive their
// launcher.
package cluster

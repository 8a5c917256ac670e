// Package cluster holds the end-to-end tests of resident daemons: their queue, upgrades, systemd, and jobs that outlive their
// launcher.
//
// A test starts a Lasting cluster of package e2etest, a lab with a resident daemon on each host, and submits jobs to it by
// gorun --cluster. New tests of what survives a daemon or a launcher belong here.
package cluster

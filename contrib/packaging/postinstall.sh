#!/bin/sh
# Runs after the package was installed or upgraded. It enables nothing. After an upgrade the resident daemons that run are
# reloaded: each leaves its jobs to a daemon of the new version, and the jobs continue.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || :
	systemctl try-reload-or-restart 'gorun-worker@*.service' || :
fi

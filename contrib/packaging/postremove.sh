#!/bin/sh
# Runs after the package was removed.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || :
fi

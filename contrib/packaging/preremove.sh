#!/bin/sh
# Runs before the package is removed, and by rpm and dpkg also before an upgrade, when it does nothing. The resident
# daemons stop once their jobs have ended; the removal does not wait for that.
set -e
case ${1:-} in
remove | 0)
	if [ -d /run/systemd/system ]; then
		systemctl stop --no-block 'gorun-worker@*.service' || :
	fi
	;;
esac

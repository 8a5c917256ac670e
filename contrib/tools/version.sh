#!/bin/sh
# Prints the version of this source tree, as SemVer: 1.2.3 at the tag v1.2.3, five commits later 1.2.3+5.g0123456789ab, with
# .dirty behind it if files differ from the commit, and +N.gHASH of 0.0.0 before the first tag. Without git it is 0.0.0+source.
cd "$(dirname "$0")/../.." || exit
described=$(git describe --tags --match 'v[0-9]*' --abbrev=12 --long --dirty 2>/dev/null) ||
	described=$(git describe --always --abbrev=12 --dirty 2>/dev/null) || { echo 0.0.0+source; exit; }
case $described in
v*) ;;
*) described=v0.0.0-$(git rev-list --count HEAD)-g$described ;;
esac
case $described in *-dirty) dirty=.dirty ;; *) dirty= ;; esac
described=${described%-dirty}
hash=${described##*-}
tag=${described%-*}
commits=${tag##*-}
tag=${tag%-*}
case $commits$dirty in
0) echo "${tag#v}" ;;
*) echo "${tag#v}+$commits.$hash$dirty" ;;
esac

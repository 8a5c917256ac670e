package ssh

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// bootstrapScript runs under the host's /bin/sh, whichever that is (dash, busybox, bash, ksh), quoted for the user's
// login shell, whichever that is (sh, bash, zsh, csh, fish). So it is POSIX plus -nt and -O. It contains no single
// quote (it is itself quoted with them), no backslash (fish) and no exclamation mark (csh), and its lines are joined
// with blanks (csh ends a quoted string at the end of a line).
//
// openssl is the first choice for the checksum: unlike most others it uses the processor's instructions for it and
// takes 20 ms instead of 150.
//
// A binary is trusted without being read again while it is not newer than the file "ok" beside it, which is written
// once the binary is on disk: reading it costs more than everything else in a warm start. What ssh delivers is hashed
// while it arrives, and not run if it is another. A binary is also not read if the launcher reports that another login
// has just got it, unless a damaged one was there before. Writing it to disk may take longer than all the rest, so the program does not wait: a child of
// it syncs the binary and writes "ok", and ends with it at the latest. The next start that finds a binary without "ok"
// checks its hash.
//
// Places: the user's cache, then directories of our own in shared ones, which must be ours and not links. An empty file
// is executed to see whether the place allows programs: execve accepts it (as a script) unless the place is mounted
// noexec.
//
// When a place turns out to be full the next one is tried, but only after the launcher has confirmed, with the nonce of
// the markers, that it is still there. This also drops whatever it sent that was not read after head had ended.
//
// The file "id" beside the binaries of all versions is the name of the directory, chosen by the first login. It shows
// the launcher that two logins lead to the same directory, whatever the names of their hosts. A login that finds it
// created but not yet written looks again.
//
// A host with no tool for the checksum only compares the length of what ssh has delivered.
//
// dd, where it can count bytes, reads the binary in large pieces, in half the time that head takes. The file is
// appended to and not truncated first: ext4 flushes a file that was truncated when it is closed, and the login would
// wait for that.
//
// When nothing has arrived for @QUIET@ seconds, the connection to the launcher is dead, although sshd may notice only
// two hours later: a watching child then ends the shell and its readers, and removes the file. Each message of the
// launcher gives the shell as much time again.
//
// Any number of launchers may upload at once: each writes a file of its own and renames it. A later upload removes what
// a power cut left behind.
const bootstrapScript = `
say() { echo; echo "@MARKER@ @NONCE@ $*"; };
g=; t=;
calm() { [ -z "$g" ] || kill "$g" 2>/dev/null; g=; };
run() { calm; say RUN "$f"; exec "$f" "$@"; };
sum() {
  if command -v openssl; then openssl dgst -sha256;
  elif command -v sha256sum; then sha256sum;
  elif command -v shasum; then shasum -a 256;
  elif command -v python3; then python3 -c "import hashlib,sys;print(hashlib.sha256(sys.stdin.buffer.read()).hexdigest())";
  elif [ "$(wc -c)" -eq @SIZE@ ]; then echo @SHA@; fi;
};
right() { case "$1" in *@SHA@*) ;; *) false;; esac; };
good() { right "$(sum <"$1" 2>/dev/null)"; };
at() { d=$1; f=$1/@SHA@/gorun; k=$1/@SHA@/ok; };
fresh() { [ -f "$k" ] && if [ "$f" -nt "$k" ]; then false; fi; };
there() { [ -f "$f" ] && [ -x "$f" ]; };
cached() { at "$1"; [ -O "$d" ] && there && { fresh || { good "$f" && : >"$k"; } || { b=$f; false; }; }; };
b=; p="@PLATFORM@"; m=$(uname -sm);
case "$p" in ""|"$m") ;; *) say FAIL platform "$m"; exit 1;; esac;
h=${XDG_CACHE_HOME:-${HOME:-/nonexistent}/.cache}/gorun;
cached "$h" && run "$@";
u=gorun-$(id -u);
for d in /tmp/$u /var/tmp/$u /dev/shm/$u; do
  [ -h "$d" ] || { cached "$d" && run "$@"; };
done;
o=$(umask); umask 077; e=; i=;
clean() { [ -z "$t" ] || rm -f "$t"; };
trap "calm; clean" 0; trap "exit 1" 1 2 13 15;
if command -v gzip >/dev/null; then z=gz; else z=raw; fi;
safe() { sync "$f"; : >"$k"; };
keep() { mv -f "$t" "$f" && { t=; safe </dev/null >/dev/null 2>&1 & umask "$o"; run "$@"; }; };
large=iflag=fullblock,count_bytes;
take() { if dd $large count=0 </dev/null; then dd bs=64k $large count="$n"; else head -c "$n"; fi 2>/dev/null; };
unpack() { head -c "$n" | { gzip -dc || { cat >/dev/null; false; }; }; };
watch() {
  read -r c x </proc/self/stat; echo "$c"; exec </dev/null >/dev/null 2>&1;
  y=0; z=;
  until [ "$y" = "$z" ]; do
    z=$y; x=0; while [ $x -lt @QUIET@ ]; do sleep 1 || exit; x=$((x+1)); done; y=$(wc -c <"$t");
  done;
  grep -q @NONCE@ /proc/$$/cmdline || exit;
  kill -STOP $$; k=" $$ ";
  for i in 1 2 3; do for x in /proc/[0-9]*/stat; do
    read -r y z s c x <"$x" && case "$k" in *" $y "*) ;; *" $c "*) k="$k$y ";; esac;
  done; done;
  rm -f "$t"; kill -9 $k;
};
wake() { calm; g=$(watch &); };
hear() { wake; while read -r n a; do [ "$n" = wait ] || return 0; wake; done; exit 1; };
for d in "$h" /tmp/$u /var/tmp/$u /dev/shm/$u; do
  at "$d";
  case $d in */$u) [ -h "$d" ] && continue;; esac;
  if [ -e "$d/@SHA@" ]; then find "$d/@SHA@" -name ".up-*" -mmin +60 -exec rm -f {} + 2>/dev/null; fi;
  if [ -e "$d" ]; then [ -O "$d" ]; fi && mkdir -p "$d/@SHA@" 2>/dev/null && [ -O "$d" ]
    || { e="$e $d: not writable;"; continue; };
  t=$d/@SHA@/.up-@NONCE@;
  { : >"$t" && chmod 700 "$t"; } 2>/dev/null || { e="$e $d: not writable;"; t=; continue; };
  "$t" </dev/null 2>/dev/null || { e="$e $d: mounted noexec;"; clean; t=; continue; };
  [ -f "$d/id" ] || (set -C; echo @NONCE@ >"$d/id") 2>/dev/null;
  i=; x=0; while [ -z "$i" ] && [ -f "$d/id" ] && [ $x -lt 9999 ]; do read -r i 2>/dev/null <"$d/id"; x=$((x+1)); done;
  say NEED $z "$i";
  hear;
  if [ "$n" = 0 ]; then
    if [ "$b" = "$f" ]; then cached "$d"; else there; fi && { clean; umask "$o"; run "$@"; };
    say NEED $z; hear;
  fi;
  y=$(case $z/$a in gz/) unpack;; *) take;; esac | tee -a "$t" 2>/dev/null | sum 2>/dev/null);
  if [ "$(wc -c <"$t")" -eq @SIZE@ ]; then right "$y" || { calm; clean; say FAIL damaged; exit 1; }; keep "$@"; fi;
  e="$e $d: cannot be written, full?;"; clean; t=;
  say AGAIN; wake; grep -q @NONCE@ || exit 1;
done;
say FAIL place "$e"; exit 1
`

// bootstrapCommand returns the command for the login shell.
func bootstrapCommand(nonce string, b Binary, quiet time.Duration, args []string) (string, error) {
	if len(b.SHA256) != 64 || strings.Trim(b.SHA256, "0123456789abcdef") != "" {
		return "", fmt.Errorf("bad SHA-256 %q", b.SHA256)
	}
	if strings.Trim(b.Platform, plainLetters) != "" {
		return "", fmt.Errorf("bad platform %q", b.Platform)
	}
	script := strings.NewReplacer(
		"@MARKER@", marker, "@NONCE@", nonce, "@SHA@", b.SHA256, "@SIZE@", strconv.FormatInt(b.Size, 10),
		"@PLATFORM@", b.Platform, "@QUIET@", strconv.Itoa(int(quiet.Seconds())),
	).Replace(bootstrapScript)
	command := "exec /bin/sh -c '" + strings.Join(strings.Fields(script), " ") + "' gorun"
	for _, arg := range args {
		if strings.ContainsAny(arg, "'\\!\n\r\x00") {
			return "", errors.New("argument cannot be quoted for every login shell: " + strconv.Quote(arg))
		}
		command += " '" + arg + "'"
	}
	return command, nil
}

const plainLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 _-."

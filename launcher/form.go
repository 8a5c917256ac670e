package launcher

import "time"

// A job's ranks start as soon as all its hosts are ready. The hosts form their world when the first rank asks for it: to
// many programs it is of no use, and the others take a while to come to it. A job whose ranks do not ask gets a world too,
// a moment after the last of them has started, because daemons watch each other only in one.

// formAfter is how long after the last rank has started. What ranks do first is to load, for which they need the CPUs.
const formAfter = time.Second

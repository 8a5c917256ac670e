/* The rank's end of gorun's rank protocol, version 1 (worker/session/codec/PROTOCOL.md). One session per process. Steady
 * state costs one send and one receive per operation and no allocation.
 *
 * One lock guards all state. It is never held while a thread receives, copies a tensor or is in a slot. Of the threads
 * that wait, one receives for all, and the others sleep until it has what they wait for: until(). The library
 * starts one thread, which calls back from the first gorun_then on until gorun_finalize. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "gorun.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the rank protocol is little-endian, and so must be the machine"
#endif

#ifdef __FAST_MATH__
#error "compile gorun.c without -ffast-math: with it, NaN and -0 are not the same on all ranks"
#endif

/* In this order, each part uses those before it. */
#include "session/messages.h"
#include "session/state.h"
#include "session/counters.h"
#include "session/threads.h"
#include "session/socket.h"
#include "session/arena.h"
#include "session/sums.h"
#include "session/slots.h"
#include "session/wide.h"
#include "session/belt.h"
#include "session/meet.h"
#include "session/operations.h"
#include "session/alone.h"
#include "session/submit.h"
#include "session/wait.h"
#include "session/callbacks.h"
#include "session/calls.h"
#include "session/world.h"
#include "session/binding.h"

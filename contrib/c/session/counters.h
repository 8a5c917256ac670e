/* A part of gorun.c: the counters of this rank, in a page that its daemon reads: worker/counters. */

static uint64_t unseen[COUNT_PAGE_BYTES / 8], *counts = unseen;

static uint64_t stamp(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static void count(int what, uint64_t n) { __atomic_fetch_add(&counts[what / 8], n, __ATOMIC_RELAXED); }
static void note(int what, uint64_t n) { __atomic_store_n(&counts[what / 8], n, __ATOMIC_RELAXED); }

/* A child of fork leaves the page to its parent. */
static void count_apart(void) { counts = unseen; }

__attribute__((visibility("hidden"))) void gorun_open_counters(void);

/* gorun_open_counters begins to count, once. */
void gorun_open_counters(void) {
	static int opened;
	const char *path = getenv("GORUN_COUNTERS");
	if (!path || !*path || opened || pthread_atfork(NULL, NULL, count_apart))
		return;
	opened = 1;
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return;
	void *page = mmap(NULL, COUNT_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (page == MAP_FAILED)
		return;
	counts = page;
	if (!counts[COUNT_BEGAN / 8])
		note(COUNT_BEGAN, stamp());
}

static _Thread_local int helps; /* this thread waits while those of the program may compute */

/* computed returns for how many nanoseconds the main thread has run, or could have run on a CPU less busy. */
static uint64_t computed(void) {
	char name[64], text[64] = "";
	unsigned long long ran = 0, waited = 0;
	snprintf(name, sizeof name, "/proc/self/task/%d/schedstat", (int)getpid());
	int fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, text, sizeof text - 1) < 0 || sscanf(text, "%llu %llu", &ran, &waited) != 2)
		ran = waited = 0;
	if (fd >= 0)
		close(fd);
	return ran + waited;
}

/* waits notes that this rank waits, and returns the time. If the thread only helps, its waits count as long as the main thread does
 * not run, and never as what the rank does now. */
static uint64_t waits(void) {
	uint64_t began = stamp();
	if (helps)
		return began - computed();
	note(COUNT_SINCE, began);
	note(COUNT_ACTIVITY, COUNT_WAITING_IN_GORUN);
	return began;
}

/* waited_for ends a wait that waits has begun, and returns its nanoseconds. */
static uint64_t waited_for(uint64_t began) {
	if (!helps) {
		note(COUNT_ACTIVITY, COUNT_COMPUTING);
		return stamp() - began;
	}
	int64_t passed = (int64_t)(stamp() - computed() - began);
	return passed > 0 ? (uint64_t)passed : 0;
}

/* count_operation counts an operation that ran for took nanoseconds once all ranks had come, and how long this rank waited. */
static void count_operation(uint64_t blocked, uint64_t took) {
	uint64_t seen = blocked < took ? blocked : took;
	count(COUNT_OTHERS, blocked - seen);
	count(COUNT_COMMUNICATION, seen);
	count(COUNT_HIDDEN, took - seen);
	count(COUNT_OPERATIONS, 1);
}

/* waited counts a wait that waits has begun. */
static void waited(uint64_t began, uint64_t took) {
	count_operation(waited_for(began), took);
}

/* No thread waits for an operation with a callback (gorun_then). While the program submits more of them, it still computes. So
 * its wait counts from the last submission until all of them have ended. */
static struct {
	int open;
	uint64_t latest; /* stamp of the last submission */
} unwaited;

static void leave_to_callback(void) {
	unwaited.open++;
	unwaited.latest = stamp();
}

static void ended_for_callback(uint64_t took) { count_operation(--unwaited.open ? 0 : stamp() - unwaited.latest, took); }

/* What a graph of a framework tells beside its operations. contrib/python/gorun/tensorflow/engine.py has the numbers too. */
enum { EVENT_LOADS, EVENT_LOADED, EVENT_STEP };
__attribute__((visibility("hidden"))) void gorun_count_event(int event);

/* gorun_count_event counts steps, and the time a graph waits for data. It notes no activity, because a graph stops halfway when
 * its data ends. It takes no lock, because a child of fork could find it locked. So of two threads the one with the later stamp
 * may come first. */
void gorun_count_event(int event) {
	static uint64_t loading, stepped;
	uint64_t at = stamp(), since = __atomic_exchange_n(event == EVENT_STEP ? &stepped : &loading, at, __ATOMIC_RELAXED);
	if (event == EVENT_STEP && !since)
		since = __atomic_load_n(&counts[COUNT_BEGAN / 8], __ATOMIC_RELAXED);
	uint64_t took = since && since < at ? at - since : 0;
	if (event == EVENT_LOADED)
		count(COUNT_DATA, took);
	if (event == EVENT_STEP) {
		count(COUNT_STEPS, 1);
		note(COUNT_STEP_TIME, took);
	}
}

/* missed counts a wait for ranks of which some did not come. The daemon then carries out the operation, and waited counts
 * it. */
static void missed(uint64_t began) {
	count(COUNT_OTHERS, waited_for(began));
}

/* moved counts the time since waits in which this rank reduced with the others, after all had come. */
static void moved(uint64_t began) {
	count(COUNT_COMMUNICATION, waited_for(began));
}

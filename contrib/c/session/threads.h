/* A part of gorun.c: the lock, and how threads wait for each other. */

/* A language whose threads hold a lock of its own, such as Python, releases it while the library waits, and looks whether a signal has
 * come: binding.h. The library's lock is never held while a thread takes the other one. */
static struct {
	void *(*pause)(void);
	void (*resume)(void *);
	int (*signals)(void); /* not 0: its handler has raised an exception */
} host;

#define SLICE 100       /* milliseconds that such a thread sleeps at most, as a signal may have reached another thread */
#define UNFINISHED (-2) /* the code of a wait that a signal or its time limit has ended */

/* What this thread does for a caller that waits with a limit, or holds a lock of its language. */
static _Thread_local struct guest {
	int on;         /* its caller holds the host's lock, unless paused */
	void *paused;   /* what resumes it */
	int limited;    /* a signal ends its wait */
	int signalled;  /* one has come */
	int raised;     /* its handler has raised an exception */
	int deaf;       /* it must wait until the end */
	uint64_t until; /* when it ends; 0: never */
	uint64_t mark;  /* of its next operation in a slot on the belt: the ranks must bring the same */
} guest;

static void pause_host(void) {
	if (guest.on && !guest.paused && !guest.raised)
		guest.paused = host.pause();
}

static void resume_host(void) {
	void *paused = guest.paused;
	guest.paused = NULL;
	if (paused)
		host.resume(paused);
}

static void begin_wait(double seconds) {
	guest.limited = 1, guest.signalled = 0;
	guest.until = seconds < 1e9 ? stamp() + (uint64_t)(seconds > 0 ? seconds * 1e9 : 0) : 0;
}

static void end_wait(void) { guest.limited = guest.signalled = 0, guest.until = 0; }

/* impatient reports whether this thread may not wait any longer. It runs without the lock. */
static int impatient(void) {
	if (guest.deaf)
		return 0;
	if (guest.on && !guest.raised) {
		resume_host();
		struct guest mine = guest; /* a handler may call this library too */
		int raised = host.signals() != 0;
		guest = mine;
		guest.raised = raised;
		pause_host();
	}
	return guest.raised || (guest.limited && guest.signalled) || (guest.until && stamp() >= guest.until);
}

/* rest sleeps until one of some descriptors is ready, a signal has come, or this thread has to look whether it is impatient. */
static int rest(struct pollfd *fds, nfds_t n) {
	int slice = guest.on ? SLICE : -1;
	if (guest.until && !guest.deaf) {
		uint64_t at = stamp(), left = guest.until > at ? (guest.until - at + 999999) / 1000000 : 0;
		slice = slice < 0 || left < (uint64_t)slice ? (int)(left < SLICE ? left : SLICE) : slice;
	}
	if (poll(fds, n, slice) >= 0)
		return 0;
	guest.signalled |= errno == EINTR;
	return errno == EINTR ? 0 : errno;
}

/* make_condition makes one that times out by the clock of stamp. */
static void make_condition(pthread_cond_t *condition) {
	pthread_condattr_t clock;
	pthread_condattr_init(&clock);
	pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	pthread_cond_init(condition, &clock);
	pthread_condattr_destroy(&clock);
}

static pthread_cond_t emptied; /* only the thread in gorun_finalize is left */
static pthread_cond_t stirred; /* the thread that calls back has something to do */
static pthread_cond_t met;     /* no thread is in a slot any more */

static void make_conditions(void) {
	make_condition(&emptied);
	make_condition(&stirred);
	make_condition(&met);
}

static void acquire(void) { pthread_mutex_lock(&lock); }
static void let_go(void) { pthread_mutex_unlock(&lock); }

/* enter begins a call of this library, if there is a session; leave ends it and passes its code on. */
static int enter(void) {
	acquire();
	int code = ready();
	if (code)
		let_go();
	else
		world.inside++;
	return code;
}

static int leave(int code) {
	if (--world.inside == 1 && world.state == LEAVING)
		pthread_cond_signal(&emptied);
	let_go();
	return code;
}

/* stir wakes the thread that calls back, if it has something to do. */
static void stir(void) {
	int over = world.due || world.lost || world.state != JOINED;
	if (!world.calling || (!over && (world.reading || !world.callbacks)))
		return;
	if (world.polling)
		(void)!write(world.bell, &(uint64_t){1}, sizeof(uint64_t));
	else
		pthread_cond_signal(&stirred);
}

static void ring(int rank);

/* wake wakes the threads whose wait is over. */
static void wake(void) {
	for (struct waiter *w = world.waiters; w; w = w->next)
		if (world.lost || w->over(w->of))
			pthread_cond_signal(&w->woken);
	if (world.meeting && (world.lost || world.state != JOINED))
		ring(world.local_rank);
	stir();
}

/* appoint wakes one thread, which receives from now on. */
static void appoint(void) {
	for (struct waiter *w = world.waiters; w && !world.reading; w = w->next)
		if (!w->over(w->of)) {
			pthread_cond_signal(&w->woken);
			return;
		}
	if (!world.reading)
		stir();
}

static int receive(int flags, int *none);

/* sleep_on sleeps until a condition, or until this thread has to look whether it is impatient. */
static void sleep_on(pthread_cond_t *condition) {
	if (guest.on || guest.limited || guest.until) {
		uint64_t end = stamp() + SLICE * 1000000;
		end = guest.until && guest.until < end ? guest.until : end;
		struct timespec t = {(time_t)(end / 1000000000), (long)(end % 1000000000)};
		pthread_cond_timedwait(condition, &lock, &t);
	} else {
		pthread_cond_wait(condition, &lock);
	}
}

/* doze sleeps until another thread, which receives, wakes this one, or until it has to look whether it is impatient. */
static void doze(struct waiter *self) {
	struct waiter **at = &world.waiters;
	self->next = world.waiters;
	world.waiters = self;
	sleep_on(&self->woken);
	while (*at != self)
		at = &(*at)->next;
	*at = self->next;
}

/* quits does what impatient does, with the lock, which it may release meanwhile. */
static int quits(void) {
	if (!guest.on)
		return impatient();
	let_go();
	pause_host();
	int answer = impatient();
	acquire();
	return answer;
}

/* until waits for over(of), or for the loss of the session, and receives meanwhile if no other thread does. */
static int until(int (*over)(const void *), const void *of) {
	int code = GORUN_OK;
	while (!over(of) && !code) {
		if (world.lost) {
			code = fail(world.lost, "%s", world.lost_text);
		} else if (world.reading) {
			struct waiter self = {.over = over, .of = of};
			make_condition(&self.woken);
			if (quits())
				code = UNFINISHED;
			else if (!over(of) && !world.lost && world.reading)
				doze(&self);
			pthread_cond_destroy(&self.woken);
		} else {
			world.reading = 1;
			while (!over(of) && !(code = receive(0, NULL)))
				;
			world.reading = 0;
		}
	}
	appoint();
	return code == UNFINISHED && over(of) ? GORUN_OK : code;
}

/* A child of fork has this thread alone, which holds the lock, so that the child's copy of the state is consistent. */
static void forked(void) {
	world.alone = world.fd < 0;
	if (world.fd >= 0) /* so that the daemon sees the end of the parent */
		close(world.fd);
	if (world.doorbell >= 0)
		close(world.doorbell);
	world.fd = world.doorbell = -1;
	leave_mailbox();
	if (world.state == JOINED || world.state == JOINING || world.state == LEAVING)
		world.state = FORKED;
	guest.on = 0;
	counts = unseen;
	world.inside = world.reading = 0;
	world.waiters = NULL, world.meeting = NULL;
	if (world.bell >= 0)
		close(world.bell);
	world.bell = -1, world.calling = world.polling = 0;
	make_conditions();
	let_go();
}

/* A part of gorun.c: the lock, and how threads wait for each other. */

static pthread_cond_t emptied = PTHREAD_COND_INITIALIZER; /* only the thread in gorun_finalize is left */
static pthread_cond_t stirred = PTHREAD_COND_INITIALIZER; /* the thread that calls back has something to do */
static pthread_cond_t met = PTHREAD_COND_INITIALIZER;     /* no thread is in a slot any more */

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

/* until waits for over(of), or for the loss of the session, and receives meanwhile if no other thread does. */
static int until(int (*over)(const void *), const void *of) {
	int code = GORUN_OK;
	while (!over(of) && !code) {
		if (world.lost) {
			code = fail(world.lost, "%s", world.lost_text);
		} else if (world.reading) {
			struct waiter self = {.woken = PTHREAD_COND_INITIALIZER, .over = over, .of = of, .next = world.waiters}, **at = &world.waiters;
			world.waiters = &self;
			pthread_cond_wait(&self.woken, &lock);
			while (*at != &self)
				at = &(*at)->next;
			*at = self.next;
			pthread_cond_destroy(&self.woken);
		} else {
			world.reading = 1;
			while (!over(of) && !(code = receive(0, NULL)))
				;
			world.reading = 0;
		}
	}
	appoint();
	return code;
}

/* A child of fork has this thread alone, which holds the lock, so that the child's copy of the state is consistent. */
static void forked(void) {
	if (world.fd >= 0) /* so that the daemon sees the end of the parent */
		close(world.fd);
	if (world.doorbell >= 0)
		close(world.doorbell);
	world.fd = world.doorbell = -1;
	if (world.state == JOINED || world.state == JOINING || world.state == LEAVING)
		world.state = FORKED;
	world.inside = world.reading = 0;
	world.waiters = NULL, world.meeting = NULL;
	if (world.bell >= 0)
		close(world.bell);
	world.bell = -1, world.calling = world.polling = 0;
	emptied = stirred = met = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
	let_go();
}

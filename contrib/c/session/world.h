/* A part of gorun.c: how a session begins and ends. */

/* place reads a number of the world, which WELCOME sets. */
static int place(const int *number) {
	acquire();
	int n = *number;
	let_go();
	return n;
}

int gorun_joined(void) { return place(&world.state) == JOINED; }
int gorun_rank(void) { return place(&world.rank); }
int gorun_size(void) { return place(&world.size); }
int gorun_local_rank(void) { return place(&world.local_rank); }
int gorun_local_size(void) { return place(&world.local_size); }
int gorun_cross_rank(void) { return place(&world.cross_rank); }
int gorun_cross_size(void) { return place(&world.cross_size); }

/* hello writes the first message from the environment. */
static int hello(unsigned char *b) {
	const char *token = getenv("GORUN_TOKEN"), *rank = getenv("GORUN_PROCESS");
	if (!token || !rank || strlen(token) != 64)
		return fail(GORUN_INVALID, "join world: GORUN_TOKEN or GORUN_PROCESS is missing or wrong");
	memset(b, 0, 64);
	memcpy(b, "GORUNRK1", 8);
	put32(b + 8, VERSION);
	put32(b + 12, (uint32_t)strtoul(rank, NULL, 10));
	put32(b + 16, (uint32_t)getpid());
	for (int i = 0; i < 32; i++) {
		char digits[3] = {token[2 * i], token[2 * i + 1], 0}, *end;
		b[24 + i] = (unsigned char)strtoul(digits, &end, 16);
		if (*end)
			return fail(GORUN_INVALID, "join world: GORUN_TOKEN is not hexadecimal");
	}
	return GORUN_OK;
}

static int dial(const char *name) {
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t n = strlen(name);
	if (n + 1 > sizeof address.sun_path)
		return fail(GORUN_INVALID, "join world: GORUN_SOCKET is too long");
	memcpy(address.sun_path + 1, name, n);
	world.fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	const struct timeval slice = {0, SLICE * 1000};
	if (world.fd < 0 || setsockopt(world.fd, SOL_SOCKET, SO_RCVTIMEO, &slice, sizeof slice))
		return fail(GORUN_LOST, "join world: socket: %s", strerror(errno));
	int failed;
	do
		failed = connect(world.fd, (struct sockaddr *)&address,
				 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n));
	while (failed && errno == EINTR);
	return failed ? fail(GORUN_LOST, "join world: connect to gorun's daemon: %s", strerror(errno)) : GORUN_OK;
}

/* leave_region unmaps a region of the arena, unless the program still uses memory in it. */
static void leave_region(struct region *r) {
	struct block *b = r->blocks;
	while (b && !b->used)
		b = b->next;
	struct region *left = b ? add_region(&world.left) : NULL;
	if (left)
		*left = *r;
	else if (!b)
		discard(r);
}

/* drop frees what the session had. */
static void drop(void) {
	int shown = 0; /* results that have not been released: their memory stays */
	for (uint32_t i = 0; i < world.count; i++) {
		struct operation *o = &world.operations[i];
		shown |= o->stage == READABLE && o->region != NO_REGION;
		if (o->stage != UNUSED && o->staged)
			o->block->used = 0;
		o->staged = NULL;
		if (o->stage != UNUSED)
			close_operation(o);
	}
	for (size_t i = 0; i < world.arena.count; i++)
		leave_region(&world.arena.list[i]);
	for (size_t i = 0; i < world.results.count && !shown; i++)
		discard(&world.results.list[i]);
	for (size_t i = 0; i < world.seen.count; i++)
		discard(&world.seen.list[i]);
	for (uint32_t i = 0; world.table && i < SLOT_ROOM; i++)
		if (world.table[i]) {
			free(world.table[i]->name);
			free(world.table[i]);
		}
	free(world.table);
	if (world.slots)
		munmap(world.slots, world.slots_bytes);
	leave_mailbox();
	world.mail_awaited = 0;
	world.table = NULL, world.slots = NULL, world.slot_count = 0, world.left_slots = 0, world.slots_awaited = 0;
	free(world.news);
	free(world.ends);
	world.news = NULL, world.ends = NULL, world.news_count = world.ends_count = world.ends_room = 0, world.kept = 0;
	free(world.sets);
	world.sets = NULL, world.set_count = 0, world.set = 0, world.wire = 0;
	if (world.operations)
		munmap(world.operations, MAX_IN_FLIGHT * sizeof *world.operations);
	free(world.arena.list);
	free(world.results.list);
	free(world.seen.list);
	free(world.in);
	free(world.out);
	world.operations = NULL, world.in = NULL, world.out = NULL, world.due = world.last = NULL, world.callbacks = 0;
	world.arena = world.results = world.seen = (struct regions){0};
	world.count = 0;
	if (world.fd >= 0)
		close(world.fd);
	if (world.doorbell >= 0)
		close(world.doorbell);
	world.fd = world.doorbell = -1;
}

static int welcomed(const void *unused) { return unused || world.size >= 1; }
static int slots_came(const void *unused) { return unused || !world.slots_awaited; }
static int mailbox_came(const void *unused) { return unused || !world.mail_awaited; }
static int said_goodbye(const void *unused) { return unused || world.goodbye; }

/* tell_environment sends the variables that the daemon reads from the job's environment, and that a program may also set by itself. */
static int tell_environment(void) {
	static const char *const names[] = {"HOROVOD_STALL_CHECK_DISABLE", "HOROVOD_STALL_CHECK_TIME_SECONDS",
					    "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS"};
	int code = GORUN_OK;
	for (size_t i = 0; !code && i < sizeof names / sizeof *names; i++) {
		const char *value = getenv(names[i]);
		put32(world.out, ENV);
		int n = value ? snprintf((char *)world.out + 4, 4096, "%s=%s", names[i], value) : 0;
		if (n > 0 && n < 4096)
			code = send_message(4 + (size_t)n);
	}
	return code;
}

/* show_alone maps memory by whose name a daemon sees that a rank, whose variables were taken away, is alone. */
static void show_alone(void) {
	static int shown;
	int fd = shown ? -1 : (int)syscall(SYS_memfd_create, "gorun-alone", 1u);
	if (fd >= 0 && !ftruncate(fd, 1))
		shown = mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0) != MAP_FAILED;
	if (fd >= 0)
		close(fd);
}

/* connect_daemon opens the session. */
static int connect_daemon(const char *name) {
	int code = GORUN_OK;
	cpu_set_t cpus;
	world.in = malloc(MAX_ANSWER);
	world.out = malloc(MAX_MESSAGE);
	if (!world.in || !world.out)
		return fail(GORUN_MEMORY, "join world: out of memory");
	if ((code = hello(world.out)) || (code = dial(name)) || (code = send_message(64)) || (code = until(welcomed, NULL)))
		return code;
	if ((code = tell_environment()) || (world.batches && (code = send_pair(BATCH, 0))) ||
	    (world.mail_awaited && ((code = send_pair(MAILBOX, 0)) || (code = until(mailbox_came, NULL)))))
		return code;
	world.yields = sched_getaffinity(0, sizeof cpus, &cpus) || CPU_COUNT(&cpus) < world.local_size;
	if (!world.slots_awaited)
		return GORUN_OK;
	world.table = calloc(SLOT_ROOM, sizeof *world.table);
	code = world.table ? send_pair(SLOTS, 0) : fail(GORUN_MEMORY, "join world: out of memory");
	if (code || (code = until(slots_came, NULL)))
		return code;
	return world.slots ? hang_doorbell() : GORUN_OK;
}

int gorun_init(void) {
	static int watching;
	const char *name = getenv("GORUN_SOCKET");
	int code = GORUN_OK;
	acquire();
	gorun_open_counters(); /* before handlers of fork want the lock, as it adds one */
	if (world.state == FORKED && world.alone) {
		drop();
		world.state = OUTSIDE;
	}
	if (world.state != OUTSIDE && world.state != ENDED)
		code = fail(GORUN_INVALID, world.state == FORKED ? "join world: this process was forked after gorun_init"
								 : "join world: gorun_init was called already");
	else if (!watching && pthread_atfork(acquire, let_go, forked))
		code = fail(GORUN_MEMORY, "join world: out of memory");
	else if (!watching)
		make_conditions();
	if (code) {
		let_go();
		return code;
	}
	watching = 1;
	world.lost = world.goodbye = 0;
	world.rank = world.local_rank = world.cross_rank = world.size = world.local_size = world.cross_size = -1;
	world.state = JOINING;
	unwaited.open = 0;
	if (name && *name) {
		code = connect_daemon(name);
	} else {
		show_alone();
		world.rank = world.local_rank = world.cross_rank = 0;
		world.size = world.local_size = world.cross_size = 1;
		world.epoch = 1;
	}
	if (code) {
		drop();
		world.rank = world.local_rank = world.cross_rank = world.size = world.local_size = world.cross_size = -1;
	}
	__atomic_store_n(&world.state, code ? OUTSIDE : JOINED, __ATOMIC_RELAXED);
	let_go();
	return code;
}

#define FAREWELL_NS 5000000000 /* nanoseconds for the daemon's answer to BYE; it answers even if the world is gone */

int gorun_finalize(void) {
	int code = GORUN_OK;
	acquire();
	if (world.state == ENDED) {
		let_go();
		return GORUN_OK;
	}
	if (world.state != JOINED)
		code = ready();
	else if (world.calling && pthread_equal(pthread_self(), world.caller))
		code = fail(GORUN_INVALID, "leave world: gorun_finalize inside of a function that gorun_then has named");
	if (code) {
		let_go();
		return code;
	}
	world.inside++;
	__atomic_store_n(&world.state, LEAVING, __ATOMIC_RELAXED);
	wake();
	let_go();
	pause_host(); /* other threads of it must come out */
	acquire();
	dismiss();
	guest.deaf = 0, guest.limited = 0, guest.until = stamp() + FAREWELL_NS;
	if (world.fd >= 0 && world.lost) /* there is no daemon to say goodbye to, and nothing to wait for */
		shutdown(world.fd, SHUT_RDWR);
	else if (world.fd >= 0 && !(code = send_pair(BYE, 0)))
		code = until(said_goodbye, NULL);
	if (code == UNFINISHED) /* the daemon does not answer, or the program has better things to do */
		code = GORUN_OK;
	guest.until = 0;
	while (world.inside > 1) /* the other threads notice that the session is over */
		pthread_cond_wait(&emptied, &lock);
	drop();
	world.inside = 0;
	world.state = ENDED;
	let_go();
	return code;
}

int gorun_library(void) { return GORUN_LIBRARY; }

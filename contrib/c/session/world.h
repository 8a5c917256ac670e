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
static int hello(unsigned char *b, int companion) {
	const char *token = getenv("GORUN_TOKEN"), *rank = getenv("GORUN_PROCESS");
	if (!token || !rank || strlen(token) != 64)
		return fail(GORUN_INVALID, "join world: GORUN_TOKEN or GORUN_PROCESS is missing or wrong");
	memset(b, 0, 64);
	memcpy(b, "GORUNRK1", 8);
	put32(b + 8, VERSION);
	put32(b + 12, (uint32_t)strtoul(rank, NULL, 10));
	put32(b + 16, (uint32_t)getpid());
	put32(b + 20, companion ? COMPANION : 0);
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
	if (world.fd < 0)
		return fail(GORUN_LOST, "join world: socket: %s", strerror(errno));
	int failed;
	do
		failed = connect(world.fd, (struct sockaddr *)&address,
				 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + n));
	while (failed && errno == EINTR);
	return failed ? fail(GORUN_LOST, "join world: connect to gorun's daemon: %s", strerror(errno)) : GORUN_OK;
}

/* drop frees what the session had. */
static void drop(void) {
	for (uint32_t i = 0; i < world.count; i++) {
		world.operations[i].staged = NULL; /* it goes with the arena */
		if (world.operations[i].stage != UNUSED)
			close_operation(&world.operations[i]);
	}
	for (size_t i = 0; i < world.arena.count; i++)
		discard(&world.arena.list[i]);
	for (size_t i = 0; i < world.results.count; i++)
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
	world.table = NULL, world.slots = NULL, world.slot_count = 0, world.left_slots = 0, world.slots_awaited = 0;
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
static int said_goodbye(const void *unused) { return unused || world.goodbye; }

/* connect_daemon opens the session. */
static int connect_daemon(const char *name, int companion) {
	int code = GORUN_OK;
	cpu_set_t cpus;
	world.in = malloc(MAX_ANSWER);
	world.out = malloc(MAX_MESSAGE);
	if (!world.in || !world.out)
		return fail(GORUN_MEMORY, "join world: out of memory");
	if ((code = hello(world.out, companion)) || (code = dial(name)) || (code = send_message(64)) || (code = until(welcomed, NULL)))
		return code;
	if (world.batches && (code = send_pair(BATCH, 0)))
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

static int join_world(int companion) {
	static int watching;
	const char *name = getenv("GORUN_SOCKET");
	int code = GORUN_OK;
	acquire();
	gorun_open_counters(); /* before handlers of fork want the lock, as it adds one */
	if (world.state != OUTSIDE && world.state != ENDED)
		code = fail(GORUN_INVALID, world.state == FORKED ? "join world: this process was forked after gorun_init"
								 : "join world: gorun_init was called already");
	else if (!watching && pthread_atfork(acquire, let_go, forked))
		code = fail(GORUN_MEMORY, "join world: out of memory");
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
		code = connect_daemon(name, companion);
	} else {
		world.rank = world.local_rank = world.cross_rank = 0;
		world.size = world.local_size = world.cross_size = 1;
	}
	if (code) {
		drop();
		world.rank = world.local_rank = world.cross_rank = world.size = world.local_size = world.cross_size = -1;
	}
	__atomic_store_n(&world.state, code ? OUTSIDE : JOINED, __ATOMIC_RELAXED);
	let_go();
	return code;
}

int gorun_init(void) { return join_world(0); }
int gorun_init_companion(void) { return join_world(1); }

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
	dismiss();
	if (world.fd >= 0 && world.lost) /* there is no daemon to say goodbye to, and nothing to wait for */
		shutdown(world.fd, SHUT_RDWR);
	else if (world.fd >= 0 && !(code = send_pair(BYE, 0)))
		code = until(said_goodbye, NULL);
	while (world.inside > 1) /* the other threads notice that the session is over */
		pthread_cond_wait(&emptied, &lock);
	drop();
	world.inside = 0;
	world.state = ENDED;
	let_go();
	return code;
}

int gorun_library(void) { return GORUN_LIBRARY; }

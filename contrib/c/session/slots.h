/* A part of gorun.c: slots, where the ranks of a host reduce without the daemon: "Slots" in PROTOCOL.md. */

/* How many seconds a rank polls before it sleeps, at least and at most. After SPIN it yields the CPU meanwhile, and from the beginning if
 * ranks outnumber CPUs. Where that was in vain others have work for the CPUs, and who polls on loses its turn to them. So the next wait
 * polls for SHORT only, and each one after it for twice as long, until one is in vain again. One in PROBE polls for SPIN then, which is
 * longer than a wake-up: otherwise ranks that wake each other in turn would do so for ever. */
#define SHORT 5e-6
#define SPIN 50e-6
#define YIELD 200e-6

#define PROBE 32

static double patience = YIELD;
static uint32_t in_vain;

static double now(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static uint64_t *word(const struct slot *l, int rank) { return (uint64_t *)(void *)(l->words + LINE * rank); }
static uint32_t *has_left(int rank) { return (uint32_t *)(void *)(world.slots + LINE * rank); }
static uint32_t *is_asleep(int rank) { return has_left(rank) + 1; }

/* is_over reports whether the world has ended: no operation completes in a slot any more, and GONE is on its way. */
static int is_over(void) { return __atomic_load_n(has_left(world.local_rank), __ATOMIC_SEQ_CST) == 2; }

static unsigned char *buffer(const struct slot *l, int rank, uint64_t use) {
	return l->buffers + l->stride * (2 * (size_t)rank + (use & 1));
}

static uint64_t hash_of(const char *name) {
	uint64_t hash = 14695981039346656037u;
	for (const char *c = name; *c; c++)
		hash = (hash ^ (unsigned char)*c) * 1099511628211u;
	return hash;
}

/* slot_of finds the slot of a name; with add it makes one to offer. NULL: there is none, or no room. */
static struct slot *slot_of(const char *name, int add) {
	if (!world.slots || world.left_slots)
		return NULL;
	uint64_t hash = hash_of(name);
	uint32_t at = (uint32_t)(hash ^ hash >> 32) % SLOT_ROOM;
	for (; world.table[at]; at = (at + 1) % SLOT_ROOM)
		if (world.table[at]->hash == hash && !strcmp(world.table[at]->name, name))
			return world.table[at];
	if (!add || world.slot_count >= SLOT_ROOM / 2)
		return NULL;
	struct slot *l = calloc(1, sizeof *l);
	if (l)
		l->name = strdup(name);
	if (!l || !l->name) {
		free(l);
		return NULL;
	}
	l->hash = hash;
	world.table[at] = l;
	world.slot_count++;
	return l;
}

/* may_wide reports whether a wide slot suits a call: its rank waits for the end, and the other ranks can map its tensors. */
static int may_wide(const gorun_call *c, size_t bytes) {
	const unsigned char *in = c->in, *out = c->out;
	return bytes <= (world.yields ? MAX_CROWD_BYTES : MAX_WIDE_BYTES) && !c->npieces && holder(in, bytes) && holder(out, bytes) &&
	       (in == out || in + bytes <= out || out + bytes <= in);
}

/* may_belt reports whether the belt suits a call: neither a wide slot nor the daemon is faster for its tensors. */
static int may_belt(const gorun_call *c, size_t bytes) {
	const unsigned char *in = c->in, *out = c->out;
	return world.has_belt && bytes > MAX_SLOT_BYTES && bytes <= MAX_BELT_BYTES &&
	       (c->npieces || !holder(in, bytes) || !holder(out, bytes) || may_wide(c, bytes)) &&
	       (in == out || in + bytes <= out || out + bytes <= in);
}

/* shape_of returns a hash of what ranks compare beside type and reduction: the dimensions, and the root, by which bindings sign lists
 * of tensors. */
static uint64_t shape_of(const gorun_call *c) {
	uint64_t hash = (uint64_t)(uint32_t)c->root ^ 14695981039346656037u;
	for (int i = 0; i < c->ndim; i++)
		hash = (hash ^ (uint64_t)c->dims[i]) * 1099511628211u;
	return hash;
}

static int fits(const struct slot *l, const gorun_call *c) {
	if (l->type != c->type || l->op != (int)c->op || l->wire != (int)c->wire || l->shape != shape_of(c))
		return 0;
	if (l->belt)
		return may_belt(c, l->bytes);
	/* The other ranks can map this memory only. */
	return !l->wide || (may_wide(c, l->bytes) && holder(c->in, l->bytes)->number == l->in_region &&
			    holder(c->out, l->bytes)->number == l->out_region);
}

/* may_take reports whether slots suit a call. */
static int may_take(const gorun_call *c, size_t bytes) {
	if ((int)c->kind != ALLREDUCE || c->set || !bytes ||
	    (bytes > MAX_SLOT_BYTES && !may_wide(c, bytes) && !may_belt(c, bytes)) ||
	    c->prescale != 1 || c->postscale != 1 || c->follows || c->nfollowers)
		return 0;
	switch (c->type) {
	case GORUN_FLOAT32:
	case GORUN_FLOAT64:
		return c->op == GORUN_SUM || c->op == GORUN_AVERAGE;
	case GORUN_INT32:
	case GORUN_UINT32:
	case GORUN_INT64:
	case GORUN_UINT64:
		return c->op == GORUN_SUM;
	default:
		return 0;
	}
}

/* hang_doorbell makes the socket on which the other ranks wake this one, and publishes its name. */
static int hang_doorbell(void) {
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	socklen_t n = sizeof address.sun_family; /* the kernel chooses a name */
	unsigned char *line = world.slots + LINE * world.local_rank;
	world.doorbell = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (world.doorbell < 0 || bind(world.doorbell, (struct sockaddr *)&address, n))
		return fail(GORUN_LOST, "join world: make a socket: %s", strerror(errno));
	n = sizeof address;
	if (getsockname(world.doorbell, (struct sockaddr *)&address, &n))
		return fail(GORUN_LOST, "join world: name of a socket: %s", strerror(errno));
	n -= (socklen_t)offsetof(struct sockaddr_un, sun_path);
	if (n > MAX_DOORBELL)
		return fail(GORUN_LOST, "join world: the name of a socket has %u bytes", (unsigned)n);
	memcpy(line + 9, address.sun_path, n);
	__atomic_store_n(line + 8, (unsigned char)n, __ATOMIC_RELEASE);
	return GORUN_OK;
}

/* ring wakes a rank. If its doorbell is full, it has been rung already. */
static void ring(int rank) {
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const unsigned char *line = world.slots + LINE * rank;
	unsigned char n = __atomic_load_n(line + 8, __ATOMIC_ACQUIRE);
	if (n > MAX_DOORBELL)
		return;
	memcpy(address.sun_path, line + 9, n);
	(void)!sendto(world.doorbell, "", 0, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&address,
		      (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
}

/* await_doorbell sleeps until the doorbell rings or the daemon has sent a message, and takes it. */
static int await_doorbell(void) {
	struct pollfd fds[] = {{world.doorbell, POLLIN, 0}, {world.fd, POLLIN, 0}};
	char byte;
	int none = 0, code = GORUN_OK, wrong = rest(fds, 2);
	while (fds[0].revents && recv(world.doorbell, &byte, 1, MSG_DONTWAIT) >= 0)
		;
	if (!wrong && !fds[1].revents)
		return GORUN_OK;
	acquire();
	if (wrong)
		code = lose(GORUN_LOST, "wait for other ranks: %s", strerror(wrong));
	else if (!world.reading) /* otherwise the thread that receives takes it, and rings */
		code = receive(MSG_DONTWAIT, &none);
	let_go();
	return code;
}

static void rouse(void) {
	for (int r = 0; r < world.local_size; r++)
		if (r != world.local_rank && __atomic_load_n(is_asleep(r), __ATOMIC_SEQ_CST))
			ring(r);
}

/* announce publishes this rank's word, and wakes the ranks that sleep if they have waited for it. */
static void announce(struct slot *l, uint64_t value) {
	__atomic_store_n(word(l, world.local_rank), value, __ATOMIC_SEQ_CST);
	for (int r = 0; r < world.local_size; r++)
		if (__atomic_load_n(word(l, r), __ATOMIC_SEQ_CST) < value && value % 2 == 0)
			return; /* the last rank to come wakes them */
	rouse();
}

static void close_slot(struct slot *l) { l->state = ++l->closed < MAX_CLOSED ? OFFERED : CLOSED; }

/* leave_slot sends the other ranks to the daemon, where this one goes from now on. */
static void leave_slot(struct slot *l) {
	close_slot(l);
	announce(l, 2 * l->use + 1);
}

/* show publishes where this rank's tensors are. The other ranks read that after they have seen this rank's word, and this rank
 * does not come again before all of them are done. */
static void show(const struct slot *l, const gorun_call *c) {
	unsigned char *line = l->words + LINE * world.local_rank;
	put32(line + 16, l->in_region), put32(line + 20, l->out_region);
	put64(line + 24, (uint64_t)((const unsigned char *)c->in - holder(c->in, l->bytes)->data));
	put64(line + 32, (uint64_t)((const unsigned char *)c->out - holder(c->out, l->bytes)->data));
}

/* leave_slots gives all slots up for good: the others do not wait for a rank that has joined. */
static void leave_slots(void) {
	for (uint32_t i = 0; world.table && i < SLOT_ROOM; i++) {
		struct slot *l = world.table[i];
		if (l && l->state == TAKEN)
			announce(l, 2 * l->use + 1);
		if (l)
			l->state = CLOSED;
	}
	world.left_slots = 1;
}

static void enter_slot(struct slot *l, const gorun_call *c) {
	l->use++;
	if (l->wide)
		show(l, c);
	else if (!l->belt)
		copy_in(buffer(l, world.local_rank, l->use), c, 0, l->bytes);
	announce(l, 2 * l->use);
}

/* all_here reports whether every rank has come: 1 yes, 0 not yet, -1 one of them never will. */
static int all_here(const struct slot *l) {
	uint64_t use = l->use;
	int here = 1;
	/* Look at all ranks, even if one is missing: the last to come wakes no others if one will never come. */
	for (int r = 0; r < world.local_size; r++) {
		uint64_t w = __atomic_load_n(word(l, r), __ATOMIC_SEQ_CST);
		if (w >= 2 * use)
			continue;
		if (w & 1)
			return -1;
		if (__atomic_load_n(has_left(r), __ATOMIC_SEQ_CST) != 1)
			here = 0;
		else if (__atomic_load_n(word(l, r), __ATOMIC_SEQ_CST) < 2 * use)
			return -1;
	}
	/* Look at this last. A rank that comes after the end of the world finds its mark; the operation may have failed on others. */
	return is_over() ? 0 : here;
}

static void reduce(const struct slot *l, const gorun_call *c) {
	struct sum s = {.outs = 1};
	for (size_t at = 0, n; at < l->bytes; at += n) {
		gorun_piece p = piece_at(c, at, l->bytes - at);
		n = p.bytes, s.out[0] = p.out, s.count = n / sizes[l->type];
		for (int r = 0; r < world.local_size; r++)
			s.in[r] = buffer(l, r, l->use) + at;
		add(l, &s);
	}
}

/* sleep_until sleeps until the doorbell rings or a message of the daemon comes, which it takes. It does not sleep if look has
 * an answer. */
static int sleep_until(int (*look)(const struct slot *), const struct slot *l) {
	__atomic_store_n(is_asleep(world.local_rank), 1, __ATOMIC_SEQ_CST);
	/* Look once more, now that others would ring. Loads with acquire could come before the store. */
	int code = look(l) ? GORUN_OK : await_doorbell();
	__atomic_store_n(is_asleep(world.local_rank), 0, __ATOMIC_SEQ_CST);
	return code;
}

/* await calls look until it returns 1, or -1 because a rank will never come. It runs without the lock. */
static int await(int (*look)(const struct slot *), const struct slot *l, int *how) {
	double since = 0, most = patience;
	int yields = world.yields, code;
	patience = most < YIELD ? 2 * most : YIELD;
	for (uint32_t turn = 0; !(*how = look(l)); turn++) {
		if (__atomic_load_n(&world.lost, __ATOMIC_RELAXED) || __atomic_load_n(&world.state, __ATOMIC_RELAXED) != JOINED) {
			acquire();
			code = ready();
			let_go();
			return code;
		}
		if (yields)
			sched_yield();
#if defined __x86_64__ || defined __i386__
		else
			__builtin_ia32_pause();
#endif
		if (turn % 64 != 63 && !yields)
			continue;
		double t = now();
		if (!since) {
			since = t;
			pause_host();
		}
		yields = yields || t - since >= SPIN;
		if (t - since < most)
			continue;
		patience = ++in_vain % PROBE ? SHORT : SPIN;
		pause_host();
		if (impatient())
			return UNFINISHED;
		if ((code = sleep_until(look, l)))
			return code;
	}
	return GORUN_OK;
}

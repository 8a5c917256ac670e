/* A part of gorun.c: the belt, which carries tensors of ordinary memory: "The belt" in PROTOCOL.md. */

static unsigned char *area(int rank) { return world.slots + BELT + (size_t)BELT_AREA * (size_t)rank; }
static uint32_t *broken(int rank) { return (uint32_t *)(void *)area(rank); }
static uint64_t *filled(int rank) { return (uint64_t *)(void *)(area(rank) + BELT_FILLED); }
static uint64_t *reduced(int rank) { return (uint64_t *)(void *)(area(rank) + BELT_REDUCED); }

/* part_of returns the place of a part in the area of a rank. */
static unsigned char *part_of(int rank, uint64_t part) {
	return area(rank) + BELT_BUFFERS + part % BELT_DEPTH * (size_t)BELT_PART;
}

/* result_of returns the place of the share that a rank has reduced. */
static unsigned char *result_of(int rank, uint64_t part) {
	return area(rank) + BELT_RESULTS + part % BELT_DEPTH * (size_t)BELT_SHARE;
}

/* parted reports whether a rank will reduce no more shares. */
static int parted(int rank) {
	return (__atomic_load_n(broken(rank), __ATOMIC_SEQ_CST) || __atomic_load_n(has_left(rank), __ATOMIC_SEQ_CST) == 1) &&
	       __atomic_load_n(reduced(rank), __ATOMIC_SEQ_CST) < world.goal;
}

/* departed does what parted does, but ignores ranks that failed only because another one did. */
static int departed(const struct slot *l, int rank) {
	(void)l;
	return parted(rank) && __atomic_load_n(broken(rank), __ATOMIC_SEQ_CST) != BELT_FAILED;
}

/* all_have does what all_here does, for the parts that this rank waits for. */
static int all_have(uint64_t *(*count)(int)) {
	int how = 1;
	for (int r = 0; r < world.local_size; r++) {
		if (__atomic_load_n(count(r), __ATOMIC_SEQ_CST) >= world.goal)
			continue;
		if (parted(r))
			return -1;
		how = 0;
	}
	return how;
}

static int all_filled(const struct slot *l) {
	(void)l;
	return all_have(filled);
}

static int all_have_reduced(const struct slot *l) {
	(void)l;
	return all_have(reduced);
}

/* A part of a tensor, and the share of it that each rank reduces. */
struct part {
	uint64_t number; /* counted from the first one that went over the belt */
	size_t at, bytes, share;
};

/* share_of returns where a rank's share of a part begins, and sets its size. */
static size_t share_of(const struct part *p, int rank, size_t *bytes) {
	size_t lo = p->share * (size_t)rank;
	lo = lo < p->bytes ? lo : p->bytes;
	*bytes = p->share < p->bytes - lo ? p->share : p->bytes - lo;
	return lo;
}

static void publish(uint64_t *count, uint64_t part) {
	__atomic_store_n(count, part + 1, __ATOMIC_SEQ_CST);
	rouse();
}

/* fill_part copies a part of this rank's tensor to the belt, for the others to reduce. */
static void fill_part(const struct part *p, const gorun_call *c) {
	unsigned char *to = part_of(world.local_rank, p->number);
	for (int r = 0; r < world.local_size; r++) {
		size_t n, lo = share_of(p, r, &n);
		if (r != world.local_rank)
			copy_in(to + lo, c, p->at + lo, n);
	}
	publish(filled(world.local_rank), p->number);
}

/* reduce_part reduces this rank's share, for itself and for the others. */
static void reduce_part(const struct slot *l, const struct part *p, const gorun_call *c) {
	size_t n, lo = share_of(p, world.local_rank, &n);
	struct sum s = {.outs = 2};
	for (size_t at = 0, some; at < n; at += some) {
		gorun_piece own = piece_at(c, p->at + lo + at, n - at);
		some = own.bytes, s.count = some / sizes[l->type];
		for (int r = 0; r < world.local_size; r++)
			s.in[r] = r == world.local_rank ? own.in : part_of(r, p->number) + lo + at;
		s.out[0] = own.out, s.out[1] = result_of(world.local_rank, p->number) + at;
		add(l, &s);
	}
	publish(reduced(world.local_rank), p->number);
}

/* take_part takes what the others have reduced. */
static void take_part(const struct part *p, const gorun_call *c) {
	for (int r = 0; r < world.local_size; r++) {
		size_t n, lo = share_of(p, r, &n);
		if (r != world.local_rank)
			copy_out(result_of(r, p->number), c, p->at + lo, n);
	}
}

/* await_part waits until all ranks have filled (or reduced) a part. It sets *how to -1 if a rank never will. */
static int await_part(const struct slot *l, int (*look)(const struct slot *), const struct part *p, int *how) {
	world.goal = p->number + 1;
	return await(look, l, how);
}

/* pass_belt reduces a tensor part by part. Three parts are under way, so that ranks of equal speed never wait: while this rank
 * fills one, the others have filled the part before it and reduced the one before that. It runs without the lock. */
static int pass_belt(const struct slot *l, const gorun_call *c, int *how) {
	size_t count = (l->bytes + BELT_PART - 1) / BELT_PART, ranks = (size_t)world.local_size;
	struct part under_way[BELT_DEPTH];
	int code = GORUN_OK;
	for (size_t i = 0; !code && *how > 0 && i < count + 2; i++) {
		struct part *p = &under_way[i % BELT_DEPTH], *before = &under_way[(i + 2) % BELT_DEPTH];
		struct part *first = &under_way[(i + 1) % BELT_DEPTH];
		if (i < count) {
			*p = (struct part){.number = world.parts + i, .at = i * BELT_PART};
			p->bytes = l->bytes - p->at < BELT_PART ? l->bytes - p->at : BELT_PART;
			p->share = ((p->bytes + ranks - 1) / ranks + LINE - 1) / LINE * LINE;
			fill_part(p, c);
		}
		if (i >= 1 && i <= count && !(code = await_part(l, all_filled, before, how)) && *how > 0)
			reduce_part(l, before, c);
		if (i >= 2 && !code && *how > 0 && !(code = await_part(l, all_have_reduced, first, how)) && *how > 0)
			take_part(first, c);
	}
	world.parts += count;
	return code;
}

/* leave_belt closes the belt for good, because the ranks are at different parts. */
static void leave_belt(int why) {
	world.has_belt = 0;
	__atomic_store_n(broken(world.local_rank), (uint32_t)why, __ATOMIC_SEQ_CST);
	rouse();
}

/* A part of gorun.c: memory that the daemon sees. */

#define ALIGNMENT 64
#define REGION_BYTES (16u << 20) /* of a region for small blocks; untouched pages cost nothing */
#define SPARE_BYTES (256u << 20)  /* bytes of empty regions that are kept */

/* take finds n bytes in a region, first fit. */
static struct block *take(struct region *r, size_t n) {
	int passed = 0; /* a free block that is too small */
	for (struct block *b = r->lowest; b; b = b->next) {
		if (b->used || b->bytes < n) {
			passed |= !b->used;
			if (!passed && b->next)
				r->lowest = b->next;
			continue;
		}
		if (b->bytes > n) {
			struct block *rest = malloc(sizeof *rest);
			if (!rest)
				return NULL;
			*rest = (struct block){b->offset + n, b->bytes - n, 0, b, b->next};
			if (rest->next)
				rest->next->before = rest;
			b->bytes = n;
			b->next = rest;
		}
		b->used = 1;
		return b;
	}
	return NULL;
}

/* region_at returns the region that holds n bytes at p; p itself is in it even if n is 0, as regions may be neighbours. */
static struct region *region_at(const struct regions *all, const void *p, size_t n) {
	for (size_t i = 0; i < all->count; i++) {
		struct region *r = &all->list[i];
		size_t at = (uintptr_t)p - (uintptr_t)r->data;
		if ((uintptr_t)p >= (uintptr_t)r->data && at < r->bytes && n <= r->bytes - at)
			return r;
	}
	return NULL;
}

static struct region *holder(const void *p, size_t n) { return region_at(&world.arena, p, n); }

static int answered(const void *request) { return ((const struct request *)request)->answered || world.state != JOINED; }

/* grow gets a region of at least n bytes from the daemon. */
static struct region *grow(size_t n) {
	struct region fresh = {0}, *r;
	if (n < REGION_BYTES)
		n = REGION_BYTES;
	if (world.fd < 0) {
		fresh.bytes = n;
		void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (p == MAP_FAILED) {
			fail(GORUN_MEMORY, "allocate %zu bytes: %s", n, strerror(errno));
			return NULL;
		}
		fresh.data = p;
	} else {
		struct request r = {.number = ++world.request, .next = world.requests}, **at = &world.requests;
		put32(world.out, ALLOC);
		put32(world.out + 4, r.number);
		put64(world.out + 8, n);
		world.requests = &r;
		int code = send_message(16);
		if (!code)
			code = until(answered, &r);
		while (*at != &r)
			at = &(*at)->next;
		*at = r.next;
		if (!code && r.refused && r.region.bytes) /* the daemon has made it, but this process cannot map it */
			send_pair(FREE, r.region.number);
		if (code || !r.answered || r.refused) {
			if (!code)
				r.answered ? fail(r.refused, "%s", r.text) : ready();
			return NULL;
		}
		fresh = r.region;
	}
	fresh.blocks = malloc(sizeof *fresh.blocks);
	if (!fresh.blocks || !(r = add_region(&world.arena))) {
		free(fresh.blocks);
		fail(GORUN_MEMORY, "allocate %zu bytes: out of memory", n);
		return NULL;
	}
	*fresh.blocks = (struct block){.bytes = fresh.bytes};
	fresh.lowest = fresh.blocks;
	*r = fresh;
	return r;
}

/* arena_take returns a block of at least the given size, and its address. */
static struct block *arena_take(size_t bytes, void **place) {
	struct region *r = NULL;
	struct block *b = NULL;
	if (bytes > SIZE_MAX / 4) {
		fail(GORUN_INVALID, "allocate %zu bytes of shared memory: too many", bytes);
		return NULL;
	}
	bytes = bytes ? (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT : ALIGNMENT;
	for (size_t i = 0; i < world.arena.count && !b; i++) {
		r = &world.arena.list[i];
		b = take(r, bytes);
	}
	if (!b && (r = grow(bytes)))
		b = take(r, bytes);
	if (b)
		*place = r->data + b->offset;
	return b;
}

static void discard(struct region *r) {
	for (struct block *b = r->blocks, *next; b; b = next) {
		next = b->next;
		free(b);
	}
	munmap(r->data, r->bytes);
}

/* join_next merges a block with the free one after it. */
static void join_next(struct region *r, struct block *b) {
	struct block *next = b->next;
	if (r->lowest == next)
		r->lowest = b;
	b->bytes += next->bytes;
	b->next = next->next;
	if (b->next)
		b->next->before = b;
	free(next);
}

/* spare reports whether the empty regions are few enough to keep, which saves the kernel from making their pages again. */
static int spare(void) {
	size_t bytes = 0;
	for (size_t i = 1; i < world.arena.count; i++) {
		const struct block *b = world.arena.list[i].blocks;
		bytes += b->used || b->next ? 0 : world.arena.list[i].bytes;
	}
	return bytes <= SPARE_BYTES;
}

/* arena_give frees a block, merges it with its free neighbours, and gives an empty region back unless it is spare. */
static int arena_give(struct region *r, struct block *b) {
	b->used = 0;
	if (b->next && !b->next->used)
		join_next(r, b);
	if (b->before && !b->before->used) {
		b = b->before;
		join_next(r, b);
	}
	if (b->offset < r->lowest->offset)
		r->lowest = b;
	if (r == world.arena.list || r->pinned || r->blocks->used || r->blocks->next || spare())
		return GORUN_OK;
	uint32_t number = r->number;
	discard(r);
	*r = world.arena.list[--world.arena.count];
	return world.fd < 0 ? GORUN_OK : send_pair(FREE, number);
}

void *gorun_alloc_raw(size_t bytes) {
	void *p;
	if (enter())
		return NULL;
	struct block *b = arena_take(bytes, &p);
	leave(GORUN_OK);
	return b ? p : NULL;
}

void *gorun_alloc(size_t bytes) {
	void *p = gorun_alloc_raw(bytes);
	return p ? memset(p, 0, bytes) : NULL;
}

/* give_left frees a block of an earlier world, and unmaps its region with the last of them. */
static void give_left(struct region *r, struct block *b) {
	b->used = 0;
	for (b = r->blocks; b; b = b->next)
		if (b->used)
			return;
	discard(r);
	*r = world.left.list[--world.left.count];
}

int gorun_free(void *memory) {
	int code = GORUN_OK;
	struct regions *from = &world.arena;
	acquire();
	struct region *r = holder(memory, 0);
	if (!r && memory && world.state != FORKED)
		r = region_at(from = &world.left, memory, 0);
	for (struct block *b = r ? r->blocks : NULL; b; b = b->next)
		if (b->used && r->data + b->offset == (unsigned char *)memory) {
			if (from == &world.left)
				give_left(r, b);
			else if (!(code = ready()))
				code = arena_give(r, b);
			let_go();
			return code;
		}
	if (memory && !(code = ready()))
		code = fail(GORUN_INVALID, "free memory: %p is not from gorun_alloc, or freed already", memory);
	let_go();
	return code;
}

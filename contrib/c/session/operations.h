/* A part of gorun.c: operations from their submission to their end. */

/* measure_pieces checks that pieces make up a tensor of n bytes. */
static int measure_pieces(const gorun_call *c, uint64_t n) {
	const char *kind = kinds[(int)c->kind];
	if ((int)c->kind != ALLREDUCE && (int)c->kind != BROADCAST)
		return fail(GORUN_INVALID, "submit %s %s: a tensor in pieces is for allreduce and broadcast", kind, c->name);
	for (int i = 0; i < c->npieces; i++) {
		const gorun_piece *p = &c->pieces[i];
		if (p->bytes > n || p->bytes % sizes[c->type] || (p->bytes && (!p->in || !p->out)))
			return fail(GORUN_INVALID, "submit %s %s: piece %d has %zu bytes, or no memory", kind, c->name, i, p->bytes);
		n -= p->bytes;
	}
	return n ? fail(GORUN_INVALID, "submit %s %s: its pieces lack %llu bytes", kind, c->name, (unsigned long long)n) : GORUN_OK;
}

/* measure checks the memory of a call, and sets its size. */
static int measure(const gorun_call *c, size_t *bytes) {
	const char *kind = kinds[(int)c->kind];
	uint64_t n;
	if (!c->name || !*c->name || strlen(c->name) > MAX_NAME)
		return fail(GORUN_INVALID, "submit %s: a name has 1 to %d bytes", kind, MAX_NAME);
	if ((c->nsplits && !c->splits) || (c->nfollowers && !c->followers) || (c->ndim && !c->dims) || (c->npieces && !c->pieces) ||
	    c->nsplits < 0 || c->nfollowers < 0 || c->ndim < 0 || c->npieces < 0)
		return fail(GORUN_INVALID, "submit %s %s: a list is missing", kind, c->name);
	if ((size_t)c->nsplits + (size_t)c->nfollowers > (MAX_MESSAGE - 128 - MAX_NAME - 8 * MAX_DIMS) / 4)
		return fail(GORUN_INVALID, "submit %s %s: splits for %d ranks do not fit a message", kind, c->name, c->nsplits + c->nfollowers);
	if (((int)c->kind != ALLREDUCE || c->nsplits) && (c->follows || c->nfollowers))
		return fail(GORUN_INVALID, "submit %s %s: only an allreduce follows, or is followed", kind, c->name);
	if (c->nsplits && (int)c->kind != ALLTOALL && (int)c->kind != SCATTER && (int)c->kind != ADD_GROUP)
		return fail(GORUN_INVALID, "submit %s %s: only alltoall and scatter have splits", kind, c->name);
	*bytes = 0;
	if (!has_tensor((int)c->kind))
		return c->in || c->out || c->ndim ? fail(GORUN_INVALID, "submit %s %s: this operation has no tensor", kind, c->name) : GORUN_OK;
	if (c->type < GORUN_UINT8 || c->type > GORUN_COMPLEX32)
		return fail(GORUN_INVALID, "submit %s %s: unknown element type %d", kind, c->name, (int)c->type);
	if (c->ndim > MAX_DIMS)
		return fail(GORUN_INVALID, "submit %s %s: %d dimensions", kind, c->name, c->ndim);
	n = sizes[c->type];
	for (int i = 0; i < c->ndim; i++) {
		if (c->dims[i] < 0)
			return fail(GORUN_INVALID, "submit %s %s: %lld elements", kind, c->name, (long long)c->dims[i]);
		if (c->dims[i] && n > SIZE_MAX / 4 / (uint64_t)c->dims[i])
			return fail(GORUN_INVALID, "submit %s %s: too many elements", kind, c->name);
		n *= (uint64_t)c->dims[i];
	}
	*bytes = (size_t)n;
	if (c->npieces)
		return measure_pieces(c, n);
	if (n && !c->in && (int)c->kind != RECV && ((int)c->kind != BROADCAST || c->root == world.rank))
		return fail(GORUN_INVALID, "submit %s %s: no memory for %llu bytes", kind, c->name, (unsigned long long)n);
	if (n && !c->out && has_target((int)c->kind))
		return fail(GORUN_INVALID, "submit %s %s: no memory for the result of %llu bytes", kind, c->name,
			    (unsigned long long)n);
	return GORUN_OK;
}

/* open_operation finds a free place. */
static struct operation *open_operation(int kind, gorun_handle *handle) {
	struct operation *o = NULL;
	if (!world.operations) {
		void *p = mmap(NULL, MAX_IN_FLIGHT * sizeof *o, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (p == MAP_FAILED) {
			fail(GORUN_MEMORY, "submit operation: out of memory");
			return NULL;
		}
		world.operations = p;
	}
	for (uint32_t i = 0; !o && i < world.count; i++) {
		world.hint = world.hint + 1 < world.count ? world.hint + 1 : 0;
		if (world.operations[world.hint].stage == UNUSED)
			o = &world.operations[world.hint];
	}
	if (!o && world.count == MAX_IN_FLIGHT) {
		fail(GORUN_INVALID, "submit operation: %d operations are in flight already", MAX_IN_FLIGHT);
		return NULL;
	}
	if (!o) {
		world.hint = world.count;
		world.count = world.count ? 2 * world.count : 64;
		o = &world.operations[world.hint];
	}
	memset(o, 0, sizeof *o);
	o->generation = world.generation = (world.generation + 1) & INT32_MAX;
	o->kind = kind;
	o->region = NO_REGION;
	o->stage = OPEN;
	*handle = (int64_t)o->generation << 32 | (o - world.operations);
	return o;
}

static void unstage(struct operation *o) {
	if (o->staged)
		arena_give(holder(o->staged, 0), o->block);
	o->staged = NULL;
}

/* key_of returns the hash of an operation's name. Each set has names of its own, and so has each pair of ranks. */
static uint64_t key_of(const gorun_call *c) {
	uint64_t hash = hash_of(c->name) ^ (uint64_t)(uint32_t)c->set << 32;
	if ((int)c->kind == SEND || (int)c->kind == RECV)
		hash ^= (uint64_t)c->root + 1;
	if ((int)c->kind == SEND || (int)c->kind == RECV || (int)c->kind == ADD_GROUP || (int)c->kind == REMOVE_GROUP || (int)c->kind == JOIN)
		hash ^= (uint64_t)c->kind << 56;
	hash *= 1099511628211u;
	return hash ? hash : 1;
}

/* in_flight reports whether a name is in flight: until this rank has waited for its operation, no matter how fast other ranks
 * are. */
static int in_flight(uint64_t key) {
	for (uint32_t at = world.names[key % NAME_ROOM]; at; at = world.operations[at - 1].next)
		if (world.operations[at - 1].name == key)
			return 1;
	return 0;
}

static void take_name(struct operation *o, uint64_t key) {
	uint32_t *list = &world.names[key % NAME_ROOM];
	o->name = key;
	o->next = *list;
	*list = (uint32_t)(o - world.operations) + 1;
}

static void free_name(struct operation *o) {
	uint32_t *at = &world.names[o->name % NAME_ROOM];
	if (!o->name)
		return;
	while (*at != (uint32_t)(o - world.operations) + 1)
		at = &world.operations[*at - 1].next;
	*at = o->next;
	o->name = 0;
}

static void close_operation(struct operation *o) {
	free_name(o);
	unstage(o);
	free(o->text);
	free(o->counts);
	free(o->own);
	free(o->pieces);
	o->text = NULL, o->counts = NULL, o->own = NULL, o->pieces = NULL;
	o->stage = UNUSED;
}

/* A part of gorun.c: wide slots, where each rank reduces a slice of the tensors of all. */

static uint64_t *done(const struct slot *l, int rank) { return word(l, rank) + 1; }

/* tensor returns where another rank's tensor is mapped in this process, NULL if it is not. */
static unsigned char *tensor(const struct slot *l, int rank, size_t region, size_t offset) {
	const unsigned char *line = l->words + LINE * rank;
	const struct region *r = seen_region((uint32_t)rank, get32(line + region));
	uint64_t at = get64(line + offset);
	if (!r || l->bytes > r->bytes || at > r->bytes - l->bytes || at % sizes[l->type])
		return NULL;
	return r->data + at;
}

/* deserted reports whether a rank has left a wide slot before it reduced its slice. */
static int deserted(const struct slot *l, int rank) {
	return __atomic_load_n(has_left(rank), __ATOMIC_SEQ_CST) == 1 && __atomic_load_n(done(l, rank), __ATOMIC_SEQ_CST) < l->use;
}

/* all_reduced does what all_here does, for the slices of an operation in a wide slot. Even if a rank has left, it waits for the
 * others: they still write to this rank's tensor. */
static int all_reduced(const struct slot *l) {
	int how = 1;
	for (int r = 0; r < world.local_size; r++) {
		if (__atomic_load_n(done(l, r), __ATOMIC_SEQ_CST) >= l->use)
			continue;
		if (!deserted(l, r)) /* it is at work, or GONE is on its way */
			return 0;
		how = -1;
	}
	return how;
}

/* desert fails an operation in a wide slot or on the belt after a rank has left it: its tensors are partly overwritten. */
static int desert(const struct slot *l, int (*gone)(const struct slot *, int)) {
	char who[8 * MAX_SLOT_RANKS] = "";
	size_t n = 0;
	for (int r = 0; r < world.local_size; r++)
		if (gone(l, r))
			n += (size_t)snprintf(who + n, sizeof who - n, "%s%d", n ? ", " : "", r);
	return fail(GORUN_ABORTED, "allreduce %s: rank %s of this host ended in the middle of it, and the tensor holds no result",
		    l->name, who);
}

/* aim finds this rank's slice of the tensors of all ranks. */
static int aim(const struct slot *l, const gorun_call *c, struct sum *s) {
	size_t ranks = (size_t)world.local_size;
	size_t share = ((l->bytes + ranks - 1) / ranks + LINE - 1) / LINE * LINE, lo = share * (size_t)world.local_rank;
	lo = lo < l->bytes ? lo : l->bytes;
	share = share < l->bytes - lo ? share : l->bytes - lo;
	*s = (struct sum){.outs = world.local_size, .count = share / sizes[l->type]};
	for (int r = 0; r < world.local_size; r++) {
		int self = r == world.local_rank;
		const unsigned char *in = self ? c->in : tensor(l, r, 16, 24);
		unsigned char *out = self ? c->out : tensor(l, r, 20, 32);
		if (!in || !out)
			return lose(GORUN_LOST, "allreduce %s: rank %d of this host shows no tensor", l->name, r);
		s->in[r] = in + lo, s->out[r] = out + lo;
	}
	return GORUN_OK;
}

/* reduce_slice reduces this rank's slice for all ranks, and publishes that it is done. */
static void reduce_slice(const struct slot *l, const struct sum *s) {
	add(l, s);
	__atomic_store_n(done(l, world.local_rank), l->use, __ATOMIC_SEQ_CST);
	if (all_reduced(l))
		rouse();
}

/* A part of gorun.c: how an operation is submitted. */

#define QUICK 32768 /* bytes that are copied before another thread could have the host's lock */

/* stage copies a tensor that the daemon cannot see into the arena. It releases the lock meanwhile. */
static int stage(struct operation *o, gorun_call *c, size_t bytes) {
	int receives = ((int)c->kind == BROADCAST && c->root != world.rank) || (int)c->kind == RECV;
	if (!bytes || (!c->npieces && (!c->in || holder(c->in, bytes)) && (!c->out || holder(c->out, bytes))))
		return GORUN_OK;
	if (!(o->block = arena_take(bytes, &o->staged)))
		return guest.raised ? UNFINISHED : GORUN_MEMORY;
	if (c->npieces && !(o->pieces = malloc((size_t)c->npieces * sizeof *o->pieces)))
		return fail(GORUN_MEMORY, "submit %s %s: out of memory", kinds[(int)c->kind], c->name);
	if (c->npieces)
		memcpy(o->pieces, c->pieces, (size_t)c->npieces * sizeof *o->pieces);
	if (!receives) {
		let_go();
		if (bytes > QUICK)
			pause_host();
		copy_in(o->staged, c, 0, bytes);
		acquire();
	}
	o->bytes = bytes;
	o->npieces = c->npieces;
	o->target = c->out;
	c->npieces = 0;
	if (has_target((int)c->kind))
		c->out = o->staged;
	if ((int)c->kind != RECV)
		c->in = o->staged;
	return ready();
}

static void put_place(unsigned char *region, unsigned char *place, const void *p, size_t bytes) {
	struct region *r = p && bytes ? holder(p, bytes) : NULL;
	put32(region, r ? r->number : NO_REGION);
	put64(place, r ? (uint64_t)((const unsigned char *)p - r->data) : 0);
	put64(place + 8, bytes);
}

static int submit(struct operation *o, const gorun_call *c, size_t bytes) {
	unsigned char *b = world.out, *end;
	size_t name = strlen(c->name);
	memset(b, 0, 84);
	put32(b, SUBMIT);
	put32(b + 4, (uint32_t)(o - world.operations));
	b[8] = (unsigned char)((int)c->kind | (o->slot ? TAKES_SLOT : 0)), b[9] = (unsigned char)c->type;
	b[10] = (unsigned char)((int)c->op | (int)c->wire << WIRE_BITS);
	b[11] = (unsigned char)(c->ndim | (o->slot && o->slot->may_wide ? TAKES_WIDE : 0) |
				(o->slot && o->slot->may_belt ? TAKES_BELT : 0));
	put32(b + 12, (uint32_t)c->root);
	put32(b + 16, (uint32_t)c->set);
	put_place(b + 20, b + 52, c->in, bytes);
	put_place(b + 24, b + 68, c->out, c->out ? bytes : 0);
	put32(b + 28, (uint32_t)name);
	put32(b + 32, (uint32_t)(c->nsplits + c->nfollowers + (c->follows ? 1 : 0)));
	memcpy(b + 36, &c->prescale, 8);
	memcpy(b + 44, &c->postscale, 8);
	end = b + 84;
	for (int i = 0; i < c->ndim; i++, end += 8)
		put64(end, (uint64_t)c->dims[i]);
	for (int i = 0; i < c->nsplits; i++, end += 4)
		put32(end, (uint32_t)c->splits[i]);
	for (int i = 0; i < c->nfollowers; i++, end += 4)
		put32(end, (uint32_t)c->followers[i]); /* the low half is the number on the wire */
	if (c->follows) {
		put32(end, FOLLOWS);
		end += 4;
	}
	memcpy(end, c->name, name);
	return send_message((size_t)(end + name - b));
}

/* set_size returns how many ranks are in a set. */
static int set_size(uint32_t set) {
	for (size_t i = 0; i < world.set_count; i++)
		if (world.sets[i].number == set)
			return world.sets[i].size;
	return set ? 0 : world.size;
}

#define MET -1     /* the handle of an operation that was carried out in a slot */
#define MISSED -2  /* the handle of a turn that the daemon must carry out */
#define TURN 2     /* a call that waits, and is one of many that all ranks make in the same order in one slot on the belt */
#define CURRENT -1 /* the set or compression that gorun_use_set or gorun_use_wire has chosen */

static struct operation *held(gorun_handle handle, enum stage most) {
	uint32_t at = (uint32_t)handle;
	struct operation *o = at < world.count ? &world.operations[at] : NULL;
	if (o && o->stage != UNUSED && o->stage <= most && (uint32_t)(handle >> 32) == o->generation)
		return o;
	fail(GORUN_INVALID, "wait for operation: handle %lld is none, or was waited for", (long long)handle);
	return NULL;
}

/* choose fills in what a call leaves to the session, and checks everything but its memory. */
static int choose(gorun_call *c) {
	int k = (int)c->kind, sole = k == SEND || k == RECV || k == REMOVE_GROUP || k == JOIN || k == PEEK;
	if (k < ALLREDUCE || k > PEEK)
		return fail(GORUN_INVALID, "submit operation: unknown kind %d", k);
	if (c->set == CURRENT)
		c->set = sole || k == ADD_GROUP ? 0 : (int)world.set;
	if ((int)c->wire == CURRENT || !reduces(k))
		c->wire = reduces(k) ? (gorun_wire)world.wire : GORUN_WIRE_DEFAULT;
	if (c->set < 0 || (sole && c->set))
		return fail(GORUN_INVALID, "submit %s: not in process set %d", kinds[k], c->set);
	if ((int)c->wire < GORUN_WIRE_DEFAULT || c->wire > GORUN_WIRE_INT8)
		return fail(GORUN_INVALID, "submit %s: unknown wire compression %d", kinds[k], (int)c->wire);
	if ((int)c->op < 0 || c->op > GORUN_LOGICAL_XOR)
		return fail(GORUN_INVALID, "submit %s %s: unknown reduction %d", kinds[k], c->name ? c->name : "", (int)c->op);
	for (int i = 0; i < c->nfollowers && c->followers; i++)
		if (!held(c->followers[i], DONE))
			return GORUN_INVALID;
	return GORUN_OK;
}

/* submit_call starts an operation. If the caller waits for it at once, submit_call may carry it out in a slot. */
static int submit_call(gorun_call c, int stays, gorun_handle *handle) {
	struct operation *o;
	size_t bytes = 0;
	int code = handle ? choose(&c) : fail(GORUN_INVALID, "submit operation: no place for the handle");
	if (code || (code = measure(&c, &bytes)))
		return code;
	if ((int)c.kind == JOIN) {
		while (world.meeting && !(code = quits() ? UNFINISHED : ready()))
			sleep_on(&met);
		if ((code = ready()))
			return code;
		leave_slots();
	}
	uint64_t key = key_of(&c);
	int takes = stays && may_take(&c, bytes), done = 0;
	/* Sets, and pairs of ranks, have names of their own. */
	struct slot *l = c.set || (int)c.kind == SEND || (int)c.kind == RECV ? NULL : slot_of(c.name, takes);
	if (in_flight(key) || (l && l == world.meeting))
		return fail(GORUN_BUSY, "submit %s %s: an operation of this name is in flight", kinds[(int)c.kind], c.name);
	if (l && l->state == TAKEN && takes && !world.meeting && (stays == TURN ? l->belt && l->wire == (int)c.wire : fits(l, &c))) {
		*handle = MET;
		if (stays == TURN)
			l->type = c.type, l->op = (int)c.op, l->bytes = bytes;
		code = meet(l, &c, &done);
		if (code || done)
			return code;
	} else if (l && l->state == TAKEN)
		leave_slot(l);
	if (stays == TURN) {
		*handle = MISSED;
		return GORUN_OK;
	}
	if (!(o = open_operation((int)c.kind, handle)))
		return GORUN_MEMORY;
	take_name(o, key);
	o->set = (int)c.kind == REMOVE_GROUP ? c.root : c.set, o->set_size = c.nsplits;
	if (l && l->state == OFFERED && takes) {
		o->slot = l;
		l->type = c.type, l->op = (int)c.op, l->wire = (int)c.wire, l->shape = shape_of(&c), l->bytes = bytes;
		l->may_belt = may_belt(&c, bytes);
		if ((l->may_wide = l->closed < MAX_WIDENED && may_wide(&c, bytes))) /* the memory stays until the operation has ended */
			l->in_region = holder(c.in, bytes)->number, l->out_region = holder(c.out, bytes)->number;
	}
	if (world.fd < 0)
		code = alone(o, &c, bytes);
	else if (!(code = stage(o, &c, bytes)))
		code = submit(o, &c, bytes);
	if (code)
		close_operation(o);
	return code;
}

static int ended(const void *operation) { return ((const struct operation *)operation)->stage != OPEN || world.state != JOINED; }

/* desert_followers fails the followers of an operation that could not be submitted: it submits another one that must fail. */
static void desert_followers(const gorun_call *c) {
	static const int64_t one = 1;
	gorun_handle handle;
	gorun_call head = {.kind = (gorun_kind)ALLREDUCE, .name = "interrupted", .dims = &one, .ndim = 1,
			   .type = GORUN_FLOAT32, .op = GORUN_SUM, .prescale = 1, .postscale = 1,
			   .followers = c->followers, .nfollowers = c->nfollowers};
	struct operation *o = world.fd < 0 ? NULL : open_operation(ALLREDUCE, &handle);
	if (o && !submit(o, &head, 0))
		until(ended, o);
	if (o && !ready())
		close_operation(o);
}

static int start(gorun_call c, int stays, gorun_handle *handle) {
	int code = enter();
	if (code)
		return code;
	code = submit_call(c, stays, handle);
	if (code && c.nfollowers && c.followers && !world.lost && world.state == JOINED) {
		char why[sizeof error_text];
		memcpy(why, error_text, sizeof why);
		desert_followers(&c);
		memcpy(error_text, why, sizeof why);
	}
	return leave(code);
}

static int begin(gorun_call c, gorun_handle *handle) {
	c.set = CURRENT, c.wire = (gorun_wire)CURRENT;
	c.prescale = c.postscale = 1;
	return start(c, 0, handle);
}

int gorun_start(const gorun_call *call, gorun_handle *handle) {
	if (!call || call->size != sizeof *call)
		return fail(GORUN_INVALID, "submit operation: gorun_call is not the one of this library");
	return start(*call, 0, handle);
}

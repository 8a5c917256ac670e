/* A part of gorun.c: what the binding of another language stands on: contrib/python/gorun/library.py.
 *
 * Its caller holds a lock of its language, such as Python's, which these functions release while they wait or copy much. A wait ends
 * at a signal whose handler raises an exception: the function then returns UNFINISHED, and the caller finds the exception. A caller has
 * a ticket for each operation, in memory of its own that it had before: whenever it is interrupted, the ticket tells how far the
 * operation is. */

#define EXPORTED __attribute__((visibility("default")))

enum { HANDLE, CODE, TOOK, DATA, BYTES, ROWS, COUNTS, COUNT, BEGUN }; /* words of a ticket; took in nanoseconds */

/* A call as it is handed in: this head, then dims, pieces (in, out, bytes), splits and the name, ended by 0. `whole` counts all of it, a
 * multiple of 8. */
struct packed {
	uint64_t in, out, ticket, mark;
	double prescale, postscale, seconds;
	int32_t kind, type, op, wire, root, set, ndim, nsplits, npieces, follows, stays, whole;
};
enum { FOLLOWING = 1, LEADING = 2 }; /* the leading call is the last, and the others follow it */

EXPORTED void gorun_binding_open(void *(*pause)(void), void (*resume)(void *), int (*signals)(void), void *page);
EXPORTED int gorun_binding_join(int64_t *place);
EXPORTED int gorun_binding_leave(void);
EXPORTED int gorun_binding_alloc(size_t bytes, int64_t *place);
EXPORTED int gorun_binding_pin(const void *memory, int64_t *place);
EXPORTED int gorun_binding_start(const unsigned char *packed, int n);
EXPORTED int gorun_binding_attend(const int64_t *ticket, double seconds);
EXPORTED int gorun_binding_wait(int64_t *ticket, int copies);
EXPORTED int gorun_binding_release(int64_t *ticket);
EXPORTED int gorun_binding_kept(void);
EXPORTED int gorun_binding_lost(void);
EXPORTED int gorun_binding_news(uint64_t *pairs, int most);
EXPORTED int gorun_binding_ends(int64_t *triples, int most, double seconds);
EXPORTED void gorun_binding_help(int on);
EXPORTED int gorun_binding_has_slot(const char *name);

static void go_in(void) { guest.on = host.pause != NULL, guest.raised = 0; }

static int come_out(int code) {
	resume_host();
	guest.on = 0;
	return code;
}

/* gorun_binding_open takes functions that release and take the host's lock, and run the handlers of signals, and the page of counters. */
void gorun_binding_open(void *(*pause)(void), void (*resume)(void *), int (*signals)(void), void *page) {
	host.pause = pause, host.resume = resume, host.signals = signals;
	counts = page;
}

/* gorun_binding_join joins, unless code in C has, and tells the place in the world. */
int gorun_binding_join(int64_t *place) {
	go_in();
	int shared = gorun_joined(), code = shared ? GORUN_OK : gorun_init();
	const int64_t now_here[] = {world.rank, world.size, world.local_rank, world.local_size,
				    world.cross_rank, world.cross_size, world.epoch, shared, world.slots && world.has_belt};
	memcpy(place, now_here, sizeof now_here);
	return come_out(code);
}

int gorun_binding_leave(void) {
	go_in();
	return come_out(gorun_finalize());
}

int gorun_binding_alloc(size_t bytes, int64_t *place) {
	go_in();
	void *p = gorun_alloc_raw(bytes);
	*place = (int64_t)(intptr_t)p;
	return come_out(p ? GORUN_OK : world.lost ? world.lost : gorun_joined() ? GORUN_MEMORY : GORUN_INVALID);
}

/* gorun_binding_pin tells address and size of the region that memory of the library lies in. It is mapped until the end of the
 * session. */
int gorun_binding_pin(const void *memory, int64_t *place) {
	acquire();
	struct region *r = holder(memory, 0);
	if (r)
		r->pinned = 1, place[0] = (int64_t)(intptr_t)r->data, place[1] = (int64_t)r->bytes;
	let_go();
	return r ? GORUN_OK : GORUN_INVALID;
}

static int64_t *ticket_of(const struct packed *head) { return (int64_t *)(uintptr_t)head->ticket; }

/* unpack returns the call at a place. */
static gorun_call unpack(const unsigned char *b, struct packed *head) {
	memcpy(head, b, sizeof *head);
	const unsigned char *dims = b + sizeof *head, *pieces = dims + 8 * (size_t)head->ndim;
	const unsigned char *splits = pieces + sizeof(gorun_piece) * (size_t)head->npieces;
	return (gorun_call){
		.size = sizeof(gorun_call), .kind = (gorun_kind)head->kind, .type = (gorun_type)head->type, .op = (gorun_op)head->op,
		.wire = (gorun_wire)head->wire, .in = (const void *)(uintptr_t)head->in, .out = (void *)(uintptr_t)head->out,
		.dims = (const int64_t *)(const void *)dims, .ndim = head->ndim, .root = head->root, .set = head->set,
		.splits = (const int32_t *)(const void *)splits, .nsplits = head->nsplits,
		.pieces = (const gorun_piece *)(const void *)pieces, .npieces = head->npieces, .prescale = head->prescale,
		.postscale = head->postscale, .follows = head->follows == FOLLOWING,
		.name = (const char *)splits + 4 * (size_t)head->nsplits};
}

/* refuse_any refuses what could not be submitted, before anything is. */
static int refuse_any(const unsigned char *b, const unsigned char *end) {
	size_t bytes;
	int code = GORUN_OK;
	for (struct packed head; !code && b < end; b += head.whole) {
		gorun_call c = unpack(b, &head);
		if (!(code = choose(&c)) && !(code = measure(&c, &bytes)) && in_flight(key_of(&c)))
			code = fail(GORUN_BUSY, "submit %s %s: an operation of this name is in flight", kinds[(int)c.kind], c.name);
	}
	return code;
}

/* gorun_binding_start submits calls, all or none: only the end of the session, or of memory, which cannot be known before, fails
 * halfway. Then their tickets tell which were submitted; they fail if they follow a call that was not. stays: the caller waits for the
 * only call at once, which may be carried out in a slot (it returns MET), perhaps as one of many that all ranks make there in the same
 * order (TURN), with a mark that must be equal. There it waits so many seconds for the others to come, or for ever if that is negative.
 */
int gorun_binding_start(const unsigned char *packed, int n) {
	const unsigned char *end = packed + n;
	gorun_handle *leads = NULL;
	struct packed head;
	int done = 0, met = 0;
	for (const unsigned char *b = packed; b < end; b += head.whole) {
		memcpy(&head, b, sizeof head);
		ticket_of(&head)[HANDLE] = ticket_of(&head)[BEGUN] = 0;
	}
	go_in();
	int code = enter();
	if (code)
		return come_out(code);
	memcpy(&head, packed, sizeof head);
	if (head.whole < n) {
		code = refuse_any(packed, end);
		leads = code ? NULL : malloc(sizeof *leads * (size_t)(n / (int)sizeof head));
		if (!code && !leads)
			code = fail(GORUN_MEMORY, "submit operations: out of memory");
	}
	guest.mark = head.mark;
	if (head.stays && head.seconds >= 0)
		guest.until = stamp() + (uint64_t)(head.seconds * 1e9);
	for (; !code && packed < end; packed += head.whole) {
		gorun_call c = unpack(packed, &head);
		gorun_handle handle = 0;
		if (head.follows == LEADING)
			c.followers = leads, c.nfollowers = done;
		if (!(code = submit_call(c, head.stays, &handle)))
			ticket_of(&head)[BEGUN] = 1, ticket_of(&head)[HANDLE] = handle, met = handle == MET;
		if (!code && leads)
			leads[done++] = handle;
		if (code && done && head.follows && !world.lost && world.state == JOINED) {
			char why[sizeof error_text];
			memcpy(why, error_text, sizeof why);
			c.followers = leads, c.nfollowers = done;
			desert_followers(&c);
			memcpy(error_text, why, sizeof why);
		}
	}
	free(leads);
	guest.mark = guest.until = 0;
	return come_out(leave(!code && met ? MET : code));
}

/* enter_any does what enter does, also in a session that is lost: what had ended before has a result. */
static int enter_any(void) {
	acquire();
	int code = world.state == JOINED ? GORUN_OK : ready();
	if (code)
		let_go();
	else
		world.inside++;
	return code;
}

/* gorun_binding_attend waits so many seconds for the end of an operation, or for ever if that is negative. It returns 1 if the caller
 * need not wait any more. */
int gorun_binding_attend(const int64_t *ticket, double seconds) {
	int none = 0;
	if (!ticket[HANDLE] || enter_any())
		return 1;
	struct operation *o = held(ticket[HANDLE], READABLE);
	while (o && o->stage == OPEN && !none && !world.lost && !world.reading && seconds == 0)
		receive(MSG_DONTWAIT, &none);
	if (o && o->stage == OPEN && !world.lost && seconds != 0) {
		go_in();
		guest.until = seconds > 0 ? stamp() + (uint64_t)(seconds * 1e9) : 0;
		until(ended, o);
		guest.until = 0;
		o = held(ticket[HANDLE], READABLE);
	}
	int over = !o || o->stage != OPEN || world.lost;
	return come_out(leave(over));
}

/* gorun_binding_wait waits for the end of an operation, and writes that to its ticket. What it brings stays until
 * gorun_binding_release. Without copies a result for memory that the library does not own is dropped. */
int gorun_binding_wait(int64_t *ticket, int copies) {
	gorun_handle handle = ticket[HANDLE];
	gorun_result r = {0};
	if (!handle)
		return (int)ticket[CODE];
	int code = enter_any();
	if (code)
		return code;
	struct operation *o = held(handle, DONE);
	if (!o)
		return leave(GORUN_INVALID);
	go_in();
	if (o->kind == PEEK) { /* the daemon knows: no operation, and no wait for others */
		code = until(ended, o);
		code = code ? code : ready();
	} else if (o->stage == DONE) {
		count_operation(0, (uint64_t)o->took * 1000);
	} else {
		uint64_t began = waits();
		code = until(ended, o);
		if (!code && world.state != JOINED)
			code = ready();
		if (!code && !(o = held(handle, DONE))) /* another thread was first */
			code = GORUN_INVALID;
		waited(began, code ? 0 : (uint64_t)o->took * 1000);
	}
	if (code)
		return come_out(leave(code));
	ticket[TOOK] = (int64_t)o->took * 1000;
	int64_t numbers = o->ncounts;
	if (!copies)
		o->target = NULL, o->npieces = 0;
	ticket[CODE] = code = finish(o, handle, &r);
	if (r.handle) {
		ticket[DATA] = (int64_t)(intptr_t)r.data, ticket[BYTES] = (int64_t)r.bytes, ticket[ROWS] = r.rows;
		ticket[COUNTS] = (int64_t)(intptr_t)r.counts, ticket[COUNT] = numbers;
	} else {
		ticket[HANDLE] = 0;
	}
	return come_out(leave(code));
}

/* gorun_binding_release gives a result back, once, if the session has not ended. */
int gorun_binding_release(int64_t *ticket) {
	if (!ticket[HANDLE] || enter_any())
		return GORUN_OK;
	struct operation *o = held(ticket[HANDLE], READABLE);
	ticket[HANDLE] = 0;
	return leave(o && o->stage == READABLE ? give_back(o) : GORUN_OK);
}

/* gorun_binding_kept tells the daemon that the program has committed its state in this world. */
int gorun_binding_kept(void) {
	int code = enter();
	if (code)
		return code;
	if (!world.kept)
		code = send_pair(KEPT, 0);
	world.kept = 1;
	return leave(code);
}

/* take_messages takes what the daemon has sent. */
static void take_messages(void) {
	int none = 0;
	while (world.fd >= 0 && !none && !world.lost && !world.reading && !receive(MSG_DONTWAIT, &none))
		;
}

/* gorun_binding_lost returns why the session can no longer be used, 0 if it can. */
int gorun_binding_lost(void) {
	int code = enter_any();
	if (code)
		return code;
	take_messages();
	return leave(world.lost ? fail(world.lost, "%s", world.lost_text) : GORUN_OK);
}

/* gorun_binding_news returns how much news of hosts there is, the first of it in pairs of flags and stamp. */
int gorun_binding_news(uint64_t *pairs, int most) {
	if (enter_any())
		return 0;
	take_messages();
	int n = (int)world.news_count < most ? (int)world.news_count : most;
	for (int i = 0; i < n; i++)
		pairs[2 * i] = world.news[i].flags, pairs[2 * i + 1] = world.news[i].stamp;
	world.news_count -= (size_t)n;
	if (n)
		memmove(world.news, world.news + n, world.news_count * sizeof *world.news);
	return leave(n);
}

static int some_ended(const void *unused) { return unused || world.ends_count || world.state != JOINED; }

/* gorun_binding_ends waits so many seconds until operations have ended since it was first called, and tells handle, stamp and took of
 * some. With most 0 it is not called again. */
int gorun_binding_ends(int64_t *triples, int most, double seconds) {
	if (enter_any())
		return 0;
	go_in();
	if (!world.ends_room && most && (world.ends = malloc(64 * sizeof *world.ends)))
		world.ends_room = 64;
	if (!most)
		world.ends_room = world.ends_count = 0;
	guest.until = stamp() + (uint64_t)(seconds * 1e9);
	if (most && !world.lost && world.fd >= 0)
		until(some_ended, NULL);
	guest.until = 0;
	int n = (int)world.ends_count < most ? (int)world.ends_count : most;
	for (int i = 0; i < n; i++)
		triples[3 * i] = world.ends[i].handle, triples[3 * i + 1] = world.ends[i].stamp, triples[3 * i + 2] = world.ends[i].took;
	world.ends_count -= (size_t)n;
	if (n)
		memmove(world.ends, world.ends + n, world.ends_count * sizeof *world.ends);
	return come_out(leave(n));
}

/* gorun_binding_has_slot reports whether this rank has taken a slot for a name. */
int gorun_binding_has_slot(const char *name) {
	if (enter_any())
		return 0;
	struct slot *l = slot_of(name, 0);
	return leave(l && l->state == TAKEN);
}

/* gorun_binding_help notes that the calling thread waits while those of the program may compute. */
void gorun_binding_help(int on) { helps = on; }

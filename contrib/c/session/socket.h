/* A part of gorun.c: the connection to the daemon, and what its messages change. */

/* post sends a message by the socket. *gone: nobody reads it any more. */
static int post(const unsigned char *b, size_t n, int *gone) {
	for (;;) {
		if (send(world.fd, b, n, MSG_NOSIGNAL) >= 0)
			return GORUN_OK;
		if (errno == EINTR)
			continue;
		/* The daemon closes the connection after GONE, which has the reason; receive reads it. */
		*gone = errno == EPIPE || errno == ECONNRESET;
		return *gone ? GORUN_OK : lose(GORUN_LOST, "send to gorun's daemon: %s", strerror(errno));
	}
}

/* put_mail puts a message into the mailbox, and wakes the daemon if that sleeps. */
static int put_mail(const unsigned char *b, size_t n) {
	static const unsigned char mail[8] = {MAIL};
	static const struct timespec pause = {0, 50000};
	uint64_t *put = (uint64_t *)(void *)(world.mailbox + MAILBOX_PUT), *taken = (uint64_t *)(void *)(world.mailbox + MAILBOX_TAKEN);
	uint32_t *asleep = (uint32_t *)(void *)(world.mailbox + MAILBOX_ASLEEP);
	uint64_t from = *put, whole = (8 + n + 7) / 8 * 8;
	unsigned char *data = world.mailbox + MAILBOX_DATA;
	size_t at = from % MAILBOX_BYTES, more = (at + 8) % MAILBOX_BYTES, first = n < MAILBOX_BYTES - more ? n : MAILBOX_BYTES - more;
	int code = GORUN_OK, gone = 0;
	while (!code && !gone && from + whole - __atomic_load_n(taken, __ATOMIC_ACQUIRE) > MAILBOX_BYTES)
		if (!(code = post(mail, sizeof mail, &gone)))
			nanosleep(&pause, NULL);
	if (code || gone)
		return code;
	put64(data + at, n);
	memcpy(data + more, b, first);
	memcpy(data, b + first, n - first);
	__atomic_store_n(put, from + whole, __ATOMIC_SEQ_CST);
	if (__atomic_load_n(asleep, __ATOMIC_SEQ_CST) && __atomic_exchange_n(asleep, 0, __ATOMIC_SEQ_CST))
		code = post(mail, sizeof mail, &gone);
	return code;
}

static int send_message(size_t n) {
	int gone;
	return world.mailbox ? put_mail(world.out, n) : post(world.out, n, &gone);
}

static int send_pair(uint32_t type, uint32_t value) {
	put32(world.out, type);
	put32(world.out + 4, value);
	return send_message(8);
}

static int malformed(uint32_t type, size_t n) {
	return lose(GORUN_LOST, "receive from gorun's daemon: malformed message of type %u with %zu bytes", type, n);
}

static int map(int fd, uint64_t bytes, int protection, unsigned char **data) {
	void *p;
	if (fd < 0 || bytes == 0 || bytes > SIZE_MAX / 2)
		return malformed(REGION, 0);
	p = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return fail(GORUN_MEMORY, "map %llu bytes of shared memory: %s", (unsigned long long)bytes, strerror(errno));
	*data = p;
	return GORUN_OK;
}

static struct region *add_region(struct regions *r) {
	if (r->count == r->room) {
		size_t room = r->room ? 2 * r->room : 16;
		struct region *list = realloc(r->list, room * sizeof *list);
		if (!list)
			return NULL;
		r->list = list;
		r->room = room;
	}
	memset(&r->list[r->count], 0, sizeof *r->list);
	return &r->list[r->count++];
}

static struct operation *find(uint32_t handle) {
	struct operation *o = handle < world.count ? &world.operations[handle] : NULL;
	return o && o->stage == OPEN ? o : NULL;
}

static gorun_handle handle_of(const struct operation *o) { return (int64_t)o->generation << 32 | (o - world.operations); }

/* record_end keeps when an operation has ended for a binding that asks. */
static void record_end(const struct operation *o) {
	if (world.ends_count == world.ends_room) {
		struct end *all = world.ends_room ? realloc(world.ends, 2 * world.ends_room * sizeof *all) : NULL;
		if (!all)
			return;
		world.ends = all, world.ends_room *= 2;
	}
	world.ends[world.ends_count++] = (struct end){handle_of(o), (int64_t)stamp(), o->took};
}

/* end_operation notes that an operation has ended. */
static void end_operation(struct operation *o) {
	o->stage = DONE;
	record_end(o);
	if (!o->then)
		return;
	o->counted = 1;
	ended_for_callback((uint64_t)o->took * 1000);
	if (world.due)
		world.last->later = o;
	else
		world.due = o;
	world.last = o;
	o->later = NULL;
}

static int set_text(struct operation *o, int code, const unsigned char *text, size_t n) {
	o->code = code;
	o->text = malloc(n + 1);
	if (o->text) {
		memcpy(o->text, text, n);
		o->text[n] = 0;
	}
	return GORUN_OK;
}

/* open_slot takes the slot that the daemon assigned to a name. */
static int open_slot(struct slot *l, uint64_t offset) {
	size_t ranks = (size_t)world.local_size, stride;
	int wide = offset & WIDE, belt = offset & ON_BELT;
	offset &= ~(uint64_t)(WIDE | ON_BELT);
	stride = wide || belt ? 0 : (l->bytes + LINE - 1) / LINE * LINE;
	if (wide ? !l->may_wide : belt ? !l->may_belt : l->bytes > MAX_SLOT_BYTES)
		return malformed(COMPLETE, 0);
	if (!world.slots || offset % LINE || offset > world.slots_bytes || offset < LINE * ranks ||
	    ranks * (LINE + 2 * stride) > world.slots_bytes - offset)
		return malformed(COMPLETE, 0);
	if (l->state != OFFERED)
		return GORUN_OK;
	l->words = world.slots + offset;
	l->buffers = l->words + LINE * ranks;
	l->stride = stride;
	l->use = 0;
	l->wide = wide, l->belt = belt;
	l->state = TAKEN;
	return GORUN_OK;
}

/* on_complete takes the end of an operation; fd is the descriptor of its result's memory, or -1. */
static int on_complete(const unsigned char *b, size_t n, int fd) {
	struct operation *o;
	uint64_t ndim, rows, text, offset, bytes, size;
	if (n < 56)
		return malformed(COMPLETE, n);
	ndim = get32(b + 32), rows = get32(b + 36), text = get32(b + 40);
	o = find(get32(b + 4));
	if (!o || 56 + 8 * (ndim + rows) + text != n)
		return malformed(COMPLETE, n);
	o->region = get32(b + 12);
	o->took = get32(b + 44) >> 1;
	end_operation(o);
	if (get32(b + 8))
		return set_text(o, (int)get32(b + 8), b + n - text, text);
	if (rows) {
		o->counts = malloc(rows * sizeof *o->counts);
		if (!o->counts) {
			o->code = GORUN_MEMORY;
			return GORUN_OK;
		}
		memcpy(o->counts, b + 56 + 8 * ndim, rows * sizeof *o->counts);
		o->ncounts = (int64_t)rows;
	}
	o->rows = ndim ? (int64_t)get64(b + 56) : has_tensor(o->kind) ? 0 : (int64_t)rows;
	if (o->region == NO_REGION)
		return o->slot && get64(b + 16) ? open_slot(o->slot, get64(b + 16)) : GORUN_OK;
	offset = get64(b + 16), bytes = get64(b + 24), size = get64(b + 48);
	if (offset > size || bytes > size - offset)
		return malformed(COMPLETE, n);
	for (size_t i = 0; i < world.results.count; i++) {
		struct region *r = &world.results.list[i];
		if (r->number == o->region && r->bytes == size) {
			o->data = r->data + offset;
			o->data_bytes = bytes;
			return GORUN_OK;
		}
	}
	unsigned char *data;
	int code = map(fd, size, PROT_READ, &data);
	struct region *r = code ? NULL : add_region(&world.results);
	if (!r)
		return lose(GORUN_LOST, "receive result: no memory to map it");
	*r = (struct region){.number = o->region, .data = data, .bytes = size};
	o->data = data + offset;
	o->data_bytes = bytes;
	return GORUN_OK;
}

/* seen_region finds memory of another rank. */
static struct region *seen_region(uint32_t rank, uint32_t number) {
	for (size_t i = 0; i < world.seen.count; i++)
		if ((uint32_t)world.seen.list[i].rank == rank && world.seen.list[i].number == number)
			return &world.seen.list[i];
	return NULL;
}

/* on_show maps memory that another rank shares. */
static int on_show(const unsigned char *b, size_t n, int fd) {
	uint32_t rank = n == 24 ? get32(b + 4) : UINT32_MAX;
	unsigned char *data;
	if (!world.slots || rank >= (uint32_t)world.local_size || rank == (uint32_t)world.local_rank || seen_region(rank, get32(b + 8)))
		return malformed(SHOW, n);
	int code = map(fd, get64(b + 16), PROT_READ | PROT_WRITE, &data);
	struct region *r = code ? NULL : add_region(&world.seen);
	if (!r)
		return lose(GORUN_LOST, "see the memory of rank %u of this host: no memory to map it", (unsigned)rank);
	*r = (struct region){.number = get32(b + 8), .data = data, .bytes = get64(b + 16), .rank = (int)rank};
	return GORUN_OK;
}

/* on_hide unmaps memory that another rank has freed. */
static int on_hide(const unsigned char *b, size_t n) {
	struct region *r = n == 12 ? seen_region(get32(b + 4), get32(b + 8)) : NULL;
	if (!r)
		return malformed(HIDE, n);
	munmap(r->data, r->bytes);
	*r = world.seen.list[--world.seen.count];
	return GORUN_OK;
}

/* asked finds the request with a number, if it is not answered yet. */
static struct request *asked(uint32_t number) {
	struct request *r = world.requests;
	while (r && (r->answered || r->number != number))
		r = r->next;
	return r;
}

static int on_message(const unsigned char *b, size_t n, int fd) {
	uint32_t type = get32(b);
	int code;
	switch (type) {
	case WELCOME:
		if (n != 60 || get32(b + 4) != VERSION)
			return malformed(type, n);
		world.epoch = get32(b + 8);
		world.rank = (int)get32(b + 12), world.size = (int)get32(b + 16);
		world.local_rank = (int)get32(b + 20), world.local_size = (int)get32(b + 24);
		world.cross_rank = (int)get32(b + 28), world.cross_size = (int)get32(b + 32);
		world.has_belt = (get32(b + 36) & BELT_THERE) != 0;
		world.batches = (get32(b + 36) & BATCH_TAKEN) != 0;
		world.mail_awaited = (get32(b + 36) & MAIL_TAKEN) != 0;
		world.slots_awaited = get32(b + 36) & SLOTS_THERE && world.local_rank >= 0 &&
				      world.local_rank < world.local_size && world.local_size <= MAX_SLOT_RANKS;
		return GORUN_OK;
	case SLOTS:
		if (n != 16 || !world.slots_awaited || get64(b + 8) < LINE * MAX_SLOT_RANKS ||
		    (world.has_belt && get64(b + 8) < BELT + (uint64_t)BELT_AREA * (uint64_t)world.local_size))
			return malformed(type, n);
		world.slots_awaited = 0;
		if ((code = map(fd, get64(b + 8), PROT_READ | PROT_WRITE, &world.slots)) == GORUN_OK)
			world.slots_bytes = get64(b + 8);
		return code;
	case MAILBOX:
		if (n != 16 || !world.mail_awaited || (get64(b + 8) && get64(b + 8) < MAILBOX_DATA + MAILBOX_BYTES))
			return malformed(type, n);
		world.mail_awaited = 0;
		world.mailbox_bytes = get64(b + 8); /* 0: the daemon has no memory for one */
		code = world.mailbox_bytes ? map(fd, world.mailbox_bytes, PROT_READ | PROT_WRITE, &world.mailbox) : GORUN_OK;
		return code == GORUN_MEMORY ? GORUN_OK : code; /* without a mailbox, messages go by the socket */
	case WAKE:
		if (world.meeting)
			ring(world.local_rank);
		return n == 8 ? GORUN_OK : malformed(type, n);
	case SHOW:
		return on_show(b, n, fd);
	case HIDE:
		return on_hide(b, n);
	case REGION: {
		struct request *r = n == 24 ? asked(get32(b + 4)) : NULL;
		if (!r)
			return malformed(type, n);
		r->region.number = get32(b + 8);
		r->region.bytes = get64(b + 16);
		r->answered = 1;
		if ((r->refused = map(fd, r->region.bytes, PROT_READ | PROT_WRITE, &r->region.data)))
			snprintf(r->text, sizeof r->text, "%.500s", error_text);
		return GORUN_OK;
	}
	case FAIL: {
		struct operation *o;
		struct request *r;
		if (n < 20 || n != 20 + (size_t)get32(b + 16))
			return malformed(type, n);
		if (get32(b + 8) == SUBMIT) {
			if (!(o = find(get32(b + 4))))
				return malformed(type, n);
			end_operation(o);
			return set_text(o, (int)get32(b + 12), b + 20, n - 20);
		}
		if (get32(b + 8) == ALLOC && (r = asked(get32(b + 4)))) {
			r->answered = 1;
			r->refused = (int)get32(b + 12);
			snprintf(r->text, sizeof r->text, "%.*s", n < 520 ? (int)(n - 20) : 500, b + 20);
			return GORUN_OK;
		}
		return lose((int)get32(b + 12), "refused by gorun's daemon: %.*s", (int)(n - 20), b + 20);
	}
	case COMPLETE:
		return on_complete(b, n, fd);
	case COMPLETED:
		if (n != 8 + 8 * (size_t)get32(b + 4))
			return malformed(type, n);
		for (const unsigned char *at = b + 8; at < b + n; at += 8) {
			struct operation *o = find(get32(at));
			if (!o)
				return malformed(type, n);
			o->took = get32(at + 4) >> 1;
			end_operation(o);
		}
		return GORUN_OK;
	case GONE:
		if (n < 16 || n != 16 + (size_t)get32(b + 8))
			return malformed(type, n);
		return lose((int)get32(b + 4), "%.*s", (int)(n - 16), b + 16);
	case CHANGED: { /* hosts came or went: a program that keeps its world ignores that */
		struct news *all = n == 16 ? realloc(world.news, (world.news_count + 1) * sizeof *all) : NULL;
		if (!all)
			return malformed(type, n);
		world.news = all;
		all[world.news_count++] = (struct news){get32(b + 4), get64(b + 8)};
		return GORUN_OK;
	}
	case GOODBYE:
		world.goodbye = 1;
		return GORUN_OK;
	default:
		return malformed(type, n);
	}
}

/* receive takes one message. With MSG_DONTWAIT it returns GORUN_OK and sets *none if there is none. Otherwise it releases the
 * lock and waits for one; its caller has set world.reading. */
static int receive(int flags, int *none) {
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = {world.in, MAX_ANSWER};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	ssize_t n;
	int fd = -1, code, from = world.fd, ends = 0, wrong, first = guest.on;
	struct pollfd ready = {from, POLLIN, 0};
	if (!flags)
		let_go();
	do {
		int at_once = first || (guest.until && !guest.deaf); /* what is there already costs no change of the host's lock */
		n = recvmsg(from, &message, MSG_CMSG_CLOEXEC | (at_once ? MSG_DONTWAIT : flags));
		wrong = errno;
		if (!flags && n < 0 && (wrong == EAGAIN || wrong == EWOULDBLOCK || wrong == EINTR)) {
			pause_host();
			guest.signalled |= wrong == EINTR;
			ends = (!first || wrong == EINTR) && impatient();
			wrong = !ends && guest.until && !guest.deaf ? rest(&ready, 1) : EINTR;
			wrong = wrong ? wrong : EINTR;
		}
		first = 0;
		if (n < 0 && wrong == ECONNRESET) /* the daemon ended before it had read all: that is told once, before its last messages */
			wrong = EINTR;
	} while (n < 0 && wrong == EINTR && !ends);
	if (!flags)
		acquire();
	if (ends)
		return UNFINISHED;
	if (n < 0 && flags && (wrong == EAGAIN || wrong == EWOULDBLOCK)) {
		*none = 1;
		return GORUN_OK;
	}
	if (n < 0)
		return lose(GORUN_LOST, "the gorun daemon of this host is gone: %s", strerror(wrong));
	if (!n)
		return world.lost ? fail(world.lost, "%s", world.lost_text)
				  : lose(GORUN_LOST, "the gorun daemon of this host is gone: it closed the connection%s",
					 world.size < 0 ? ": it does not expect this rank, or not with this GORUN_TOKEN" : "");
	for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
		if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len == CMSG_LEN(sizeof fd))
			memcpy(&fd, CMSG_DATA(c), sizeof fd);
	code = n < 8 || message.msg_flags & MSG_TRUNC ? malformed(0, (size_t)n) : on_message(world.in, (size_t)n, fd);
	if (fd >= 0)
		close(fd);
	wake();
	return code;
}

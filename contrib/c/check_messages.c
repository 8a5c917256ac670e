/* Decodes and encodes the golden vectors in the file that is its argument: the messages of the daemon and of a rank. Then it
 * feeds damaged messages to the decoder, which may give up but not read or write where it must not: the sanitizers watch for
 * that. `make c` runs it. */
#include "gorun.c"

static uint64_t state = 1;

static uint32_t chance(uint32_t n) {
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(state >> 33) % n;
}

static unsigned char mailbox[MAILBOX_DATA + MAILBOX_BYTES] __attribute__((aligned(8)));

/* message writes a sound message of some type and returns its length. */
static size_t message(unsigned char *b) {
	static const uint32_t types[] = {WELCOME, REGION, FAIL, COMPLETE, COMPLETE, COMPLETE, GOODBYE,
					 GONE, SLOTS, WAKE, SHOW, HIDE, COMPLETED, MAILBOX, 99};
	uint32_t type = types[chance(sizeof types / sizeof *types)];
	memset(b, 0, 256);
	put32(b, type);
	put32(b + 4, chance(4));
	switch (type) {
	case WELCOME:
		put32(b + 4, VERSION);
		put32(b + 16, 2);
		return 60;
	case REGION:
		put64(b + 16, 4096);
		return 24;
	case FAIL:
		put32(b + 8, chance(2) ? SUBMIT : ALLOC);
		put32(b + 12, chance(6));
		put32(b + 16, 5);
		return 25;
	case COMPLETE: {
		uint32_t ndim = chance(3), rows = chance(3), text = chance(9);
		put32(b + 8, chance(3));
		put32(b + 12, chance(2) ? NO_REGION : chance(3));
		put64(b + 16, chance(2) ? chance(160) * LINE + chance(2) * WIDE : chance(8192));
		put64(b + 24, chance(8192));
		put32(b + 32, ndim);
		put32(b + 36, rows);
		put32(b + 40, text);
		put64(b + 48, 4096);
		return 56 + 8 * (ndim + rows) + text;
	}
	case COMPLETED:
		put32(b + 8, chance(3));
		put32(b + 16, chance(3));
		return 8 + 8 * get32(b + 4);
	case SHOW:
		put32(b + 8, chance(3));
		put64(b + 16, 4096);
		return 24;
	case HIDE:
		put32(b + 8, 7);
		return 12;
	case MAILBOX:
		put64(b + 8, chance(2) ? sizeof mailbox : 0);
		return 16;
	case SLOTS:
		put64(b + 8, 8192);
		return 16;
	case GONE:
		put32(b + 8, 7);
		return 23;
	}
	return 8;
}

/* deserting: once no rank writes any more, those that have left a wide slot in the middle are named. */
static int deserting(void) {
	struct slot slot = {.name = "grad", .type = GORUN_FLOAT32, .bytes = 4096, .wide = 1, .state = TAKEN, .use = 3};
	world.local_size = 4;
	world.local_rank = 0;
	world.slots = calloc(1, 8192);
	if (!world.slots)
		return 1;
	slot.words = world.slots + 4 * LINE;
	*done(&slot, 0) = 3;
	*has_left(1) = *has_left(3) = 1;
	int early = all_reduced(&slot);
	*done(&slot, 2) = 3;
	int then = all_reduced(&slot), code = desert(&slot, deserted);
	int wrong = early != 0 || then != -1 || code != GORUN_ABORTED ||
		    strcmp(gorun_error(), "allreduce grad: rank 1, 3 of this host ended in the middle of it, and the tensor holds no result") != 0;
	if (wrong)
		fprintf(stderr, "deserted, early %d, then %d: code %d, %s\n", early, then, code, gorun_error());
	free(world.slots);
	world.slots = NULL;
	return wrong;
}

static uint64_t counted(int what) { return __atomic_load_n(&counts[what / 8], __ATOMIC_RELAXED); }

static void pause_for(long milliseconds) {
	struct timespec t = {.tv_nsec = milliseconds * 1000000};
	nanosleep(&t, NULL);
}

static int bell_of[2]; /* the doorbell of this rank */

/* slow_rank reduces its slice 20 ms after this rank. */
static void *slow_rank(void *slot) {
	for (int i = 0; i < 10000 && !__atomic_load_n(done(slot, 0), __ATOMIC_ACQUIRE); i++)
		pause_for(1);
	pause_for(20);
	__atomic_store_n(done(slot, 1), 1, __ATOMIC_SEQ_CST);
	send(bell_of[1], "", 1, 0);
	return NULL;
}

/* counting_in_slots: once all ranks have come, a rank waits for bytes; what is left to the daemon is counted there. */
static int counting_in_slots(void) {
	static unsigned char own[4096], others[4096];
	struct slot slot = {.name = "grad", .type = GORUN_FLOAT32, .op = GORUN_SUM, .bytes = 4096, .wide = 1,
			    .state = TAKEN, .in_region = 6, .out_region = 6};
	gorun_call c = {.in = own, .out = own};
	int met_all = 0, met_none = 1;
	pthread_t thread;
	world.size = world.local_size = 2;
	world.local_rank = 0;
	world.state = JOINED;
	world.lost = 0;
	world.slots = calloc(1, 8192);
	if (!world.slots || socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, bell_of))
		return 1;
	world.doorbell = bell_of[0];
	*add_region(&world.arena) = (struct region){.number = 6, .data = own, .bytes = sizeof own};
	*add_region(&world.seen) = (struct region){.number = 7, .data = others, .bytes = sizeof others, .rank = 1};
	slot.words = world.slots + 4 * LINE;
	*word(&slot, 1) = 2;
	put32(slot.words + LINE + 16, 7), put32(slot.words + LINE + 20, 7);
	uint64_t operations = counted(COUNT_OPERATIONS), moving = counted(COUNT_COMMUNICATION);
	if (pthread_create(&thread, NULL, slow_rank, &slot))
		return 1;
	acquire();
	int code = meet(&slot, &c, &met_all);
	pthread_join(thread, NULL);
	int wrong = code || !met_all || counted(COUNT_OPERATIONS) != operations + 1 || counted(COUNT_COMMUNICATION) < moving + 20000000;
	*word(&slot, 1) = 3; /* it has given up the slot */
	code = meet(&slot, &c, &met_none);
	wrong = wrong || code || met_none || counted(COUNT_OPERATIONS) != operations + 1 || counted(COUNT_ACTIVITY) != COUNT_COMPUTING;
	let_go();
	if (wrong)
		fprintf(stderr, "slots: code %d, met %d and %d, %d operations, %d us of communication\n", code, met_all, met_none,
			(int)(counted(COUNT_OPERATIONS) - operations), (int)((counted(COUNT_COMMUNICATION) - moving) / 1000));
	close(bell_of[0]);
	close(bell_of[1]);
	free(world.slots);
	world.slots = NULL;
	world.doorbell = -1;
	world.arena.count = world.seen.count = 0;
	return wrong;
}

static void *wait_for(void *handle) { return gorun_wait(*(gorun_handle *)handle, NULL) == GORUN_INVALID ? NULL : handle; }

/* counting_one_wait: a thread whose operation another one has waited for counts nothing of what has its entry now. */
static int counting_one_wait(void) {
	gorun_handle handle, later;
	pthread_t thread;
	void *refused = &handle;
	world.state = JOINED;
	world.lost = 0;
	acquire();
	struct operation *o = open_operation(ALLREDUCE, &handle);
	uint64_t operations = counted(COUNT_OPERATIONS), hidden = counted(COUNT_HIDDEN);
	world.reading = 1; /* so that the thread sleeps */
	if (!o || pthread_create(&thread, NULL, wait_for, &handle))
		return 1;
	for (int i = 0; i < 10000 && !world.waiters; i++) {
		let_go();
		pause_for(1);
		acquire();
	}
	close_operation(o);
	for (int i = 0; i < MAX_IN_FLIGHT && o->stage == UNUSED; i++)
		open_operation(ALLREDUCE, &later);
	o->stage = DONE, o->took = UINT32_MAX;
	world.reading = 0;
	wake();
	let_go();
	pthread_join(thread, &refused);
	int wrong = refused || counted(COUNT_OPERATIONS) != operations || counted(COUNT_HIDDEN) != hidden || counted(COUNT_ACTIVITY) != COUNT_COMPUTING;
	if (wrong)
		fprintf(stderr, "wait of two threads: refused %d, %d operations\n", !refused, (int)(counted(COUNT_OPERATIONS) - operations));
	for (uint32_t i = 0; i < world.count; i++)
		close_operation(&world.operations[i]);
	return wrong;
}

/* field finds a field of a vector's first line: NAME=value, up to the next space. */
static const char *field(const char *line, const char *name) {
	size_t n = strlen(name);
	for (const char *at = strchr(line, ' '); at; at = strchr(at + 1, ' '))
		if (strncmp(at + 1, name, n) == 0 && at[1 + n] == '=')
			return at + 2 + n;
	return "?";
}

static int64_t number_of(const char *line, const char *name) { return strtoll(field(line, name), NULL, 10); }

static int is_text(const char *line, const char *name, const char *got) {
	const char *want = field(line, name);
	size_t n = strcspn(want, " \n");
	return n == 1 && *want == '-' ? !*got : strlen(got) == n && strncmp(got, want, n) == 0;
}

/* answered_mailbox takes the answer to MAILBOX, once with memory that can be mapped, and once with more than there are addresses:
 * then messages go by the socket. */
static int answered_mailbox(unsigned char *b, size_t n, int64_t bytes) {
	int fd = (int)syscall(SYS_memfd_create, "mailbox", 1u), ok;
	world.mail_awaited = 1;
	ok = fd >= 0 && !ftruncate(fd, bytes) && on_message(b, n, fd) == GORUN_OK && world.mailbox && !world.mail_awaited &&
	     (int64_t)world.mailbox_bytes == bytes;
	leave_mailbox();
	world.mail_awaited = 1;
	put64(b + 8, (uint64_t)1 << 62);
	ok = ok && on_message(b, n, fd) == GORUN_OK && !world.mailbox && !world.mail_awaited && !world.lost;
	close(fd);
	return ok;
}

/* decodes feeds a vector to the decoder and compares the result; -1 for a message that the daemon does not send. The handle of
 * a vector becomes the handle of the one operation that is open. */
static int decodes(const char *line, unsigned char *b, size_t n) {
	static unsigned char result[2 << 20];
	gorun_handle handle;
	struct operation *o = open_operation(ALLGATHER, &handle);
	if (!o || n < 8)
		return 0;
	uint32_t open = (uint32_t)handle, type = get32(b);
	int ok = -1;
	world.state = JOINED;
	world.lost = 0;
	if (strncmp(line, "welcome ", 8) == 0) {
		ok = on_message(b, n, -1) == GORUN_OK && world.rank == number_of(line, "rank") && world.size == number_of(line, "size") &&
		     world.local_rank == number_of(line, "local_rank") && world.local_size == number_of(line, "local_size") &&
		     world.cross_rank == number_of(line, "cross_rank") && world.cross_size == number_of(line, "cross_size") &&
		     world.batches == ((number_of(line, "flags") & BATCH_TAKEN) != 0) &&
		     world.mail_awaited == ((number_of(line, "flags") & MAIL_TAKEN) != 0);
	} else if (strncmp(line, "region ", 7) == 0) {
		struct request r = {.number = (uint32_t)number_of(line, "request")};
		world.requests = &r; /* without a descriptor it cannot be mapped, which is found out last */
		ok = on_message(b, n, -1) == GORUN_OK && r.answered && r.region.number == number_of(line, "region") &&
		     (int64_t)r.region.bytes == number_of(line, "bytes");
	} else if (strncmp(line, "mailbox_answer ", 15) == 0) {
		ok = answered_mailbox(b, n, number_of(line, "bytes"));
	} else if (strncmp(line, "fail ", 5) == 0) {
		put32(b + 4, open);
		ok = on_message(b, n, -1) == GORUN_OK && number_of(line, "what") == SUBMIT && o->stage == DONE &&
		     o->code == number_of(line, "code") && is_text(line, "text", o->text);
	} else if (strncmp(line, "complete ", 9) == 0) {
		put32(b + 4, open);
		if (number_of(line, "region") != NO_REGION)
			*add_region(&world.results) = (struct region){.number = 6, .data = result, .bytes = sizeof result};
		ok = on_message(b, n, -1) == GORUN_OK && o->stage == DONE && o->code == number_of(line, "code") &&
		     o->region == number_of(line, "region") && (int64_t)o->data_bytes == number_of(line, "bytes") &&
		     (o->data == NULL || (const unsigned char *)o->data == result + number_of(line, "offset")) &&
		     (o->data == NULL) == (o->region == NO_REGION) && is_text(line, "text", o->text ? o->text : "");
		const char *rows = field(line, "rows");
		for (size_t i = 0; *rows != '-' && i < get32(b + 36); i++) {
			char *end;
			ok = ok && o->counts && o->counts[i] == strtoll(rows, &end, 10);
			rows = end + 1;
		}
	} else if (strncmp(line, "completed ", 10) == 0) {
		put32(b + 4, 1);
		put32(b + 8, open);
		ok = on_message(b, 16, -1) == GORUN_OK && o->stage == DONE;
	} else if (strncmp(line, "gone ", 5) == 0) {
		ok = on_message(b, n, -1) == number_of(line, "code") && world.lost == number_of(line, "code") &&
		     is_text(line, "text", gorun_error());
	} else if (strncmp(line, "changed ", 8) == 0) {
		ok = on_message(b, n, -1) == GORUN_OK;
	} else if (strncmp(line, "goodbye", 7) == 0 && type == GOODBYE) {
		ok = on_message(b, n, -1) == GORUN_OK && world.goodbye;
	}
	close_operation(o);
	world.results.count = 0;
	world.requests = NULL;
	return ok;
}

/* numbers reads a list of numbers and returns how many there are. */
static int numbers(const char *line, const char *name, int64_t *list, int most) {
	const char *at = field(line, name);
	int n = 0;
	if (*at == '-')
		return 0;
	for (char *end = NULL; n < most && (end == NULL || *end == ','); at = end + 1)
		list[n++] = strtoll(at, &end, 10);
	return n;
}

/* tensor_memory is where a vector's tensor lies, in a region of the arena with the vector's number; NULL if it has none. */
static void *tensor_memory(const char *line, const char *region, const char *offset) {
	int64_t number = number_of(line, region);
	if (number == NO_REGION)
		return NULL;
	for (size_t i = 0; i < world.arena.count; i++)
		if (world.arena.list[i].number == number)
			return world.arena.list[i].data + number_of(line, offset);
	void *memory = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	*add_region(&world.arena) = (struct region){.number = (uint32_t)number, .data = memory, .bytes = 4096};
	return (unsigned char *)memory + number_of(line, offset);
}

/* send_submit submits what a vector describes. */
static int send_submit(const char *line, struct operation *o) {
	int64_t dims[MAX_DIMS], list[16];
	int32_t splits[16];
	char name[256];
	const char *text = field(line, "name");
	gorun_call c = {.kind = (gorun_kind)number_of(line, "kind"), .type = (gorun_type)number_of(line, "dtype"),
			.op = (gorun_op)(number_of(line, "op") & ((1 << WIRE_BITS) - 1)), .wire = (gorun_wire)(number_of(line, "op") >> WIRE_BITS),
			.in = tensor_memory(line, "in_region", "in_offset"), .out = tensor_memory(line, "out_region", "out_offset"),
			.root = (int)number_of(line, "root"), .set = (int)number_of(line, "group"), .dims = dims, .splits = splits, .name = name,
			.prescale = strtod(field(line, "pre"), NULL), .postscale = strtod(field(line, "post"), NULL)};
	c.ndim = numbers(line, "dims", dims, MAX_DIMS);
	c.nsplits = numbers(line, "splits", list, 16);
	for (int i = 0; i < c.nsplits; i++)
		splits[i] = (int32_t)list[i];
	snprintf(name, sizeof name, "%.*s", (int)strcspn(text, " \n"), text);
	return submit(o, &c, (size_t)number_of(line, "in_bytes"));
}

/* send_hello writes the first message of the process that a vector describes, whose number the kernel chose differently. */
static int send_hello(const char *line) {
	char token[65], process[16];
	snprintf(token, sizeof token, "%.64s", field(line, "token"));
	snprintf(process, sizeof process, "%d", (int)number_of(line, "rank"));
	setenv("GORUN_TOKEN", token, 1);
	setenv("GORUN_PROCESS", process, 1);
	if (hello(world.out) || get32(world.out + 16) != (uint32_t)getpid())
		return GORUN_INVALID;
	put32(world.out + 16, (uint32_t)number_of(line, "pid"));
	return send_message(64);
}

/* send_alloc asks for memory, which the daemon refuses. */
static int send_alloc(const char *line, int daemon) {
	unsigned char refusal[20] = {0};
	world.request = (uint32_t)number_of(line, "request") - 1;
	put32(refusal, FAIL);
	put32(refusal + 4, world.request + 1);
	put32(refusal + 8, ALLOC);
	put32(refusal + 12, GORUN_MEMORY);
	if (send(daemon, refusal, sizeof refusal, 0) < 0)
		return GORUN_LOST;
	return grow((size_t)number_of(line, "bytes")) ? GORUN_INVALID : GORUN_OK;
}

/* send_free frees the last block of a region, beside one that is too large for both to be kept. */
static int send_free(const char *line) {
	for (uint32_t i = 1; i <= 2; i++) {
		struct block *b = calloc(1, sizeof *b);
		size_t bytes = i * (SPARE_BYTES + 4096);
		void *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (!b || memory == MAP_FAILED)
			return GORUN_MEMORY;
		*b = (struct block){.bytes = bytes, .used = 1};
		uint32_t number = (uint32_t)number_of(line, "region") + i - 2;
		*add_region(&world.arena) = (struct region){.number = number, .data = memory, .bytes = bytes, .blocks = b, .lowest = b};
	}
	return arena_give(&world.arena.list[1], world.arena.list[1].blocks);
}

/* encodes makes the library send the message that a vector describes and compares the bytes; -1 for a message that it does not
 * send. The handle of a vector becomes the handle of the one operation that is open. */
static int encodes(const char *line, unsigned char *want, size_t n) {
	static const unsigned char goodbye[8] = {GOODBYE};
	unsigned char got[4096];
	gorun_handle handle;
	int ends[2], code = -1;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
		return 0;
	struct operation *o = open_operation(ALLREDUCE, &handle);
	world.in = malloc(MAX_ANSWER), world.out = malloc(MAX_MESSAGE);
	if (!o || !world.in || !world.out || n < 8)
		return 0;
	world.state = JOINED, world.lost = 0, world.fd = ends[0];
	acquire();
	if (strncmp(line, "hello ", 6) == 0) {
		code = send_hello(line);
	} else if (strncmp(line, "alloc ", 6) == 0) {
		code = send_alloc(line, ends[1]);
	} else if (strncmp(line, "submit ", 7) == 0) {
		put32(want + 4, (uint32_t)handle);
		code = send_submit(line, o);
	} else if (strncmp(line, "release ", 8) == 0) {
		put32(want + 4, (uint32_t)handle);
		o->region = 6; /* of its result */
		code = give_back(o);
	} else if (strncmp(line, "free ", 5) == 0) {
		code = send_free(line);
	} else if (strncmp(line, "batch", 5) == 0) {
		code = send_pair(BATCH, 0);
	} else if (strncmp(line, "mailbox ", 8) == 0) {
		code = send_pair(MAILBOX, 0);
	} else if (strncmp(line, "mail ", 5) == 0) { /* what goes by the socket while the daemon sleeps */
		world.mailbox = mailbox;
		put32(mailbox + MAILBOX_ASLEEP, 1);
		code = send_pair(KEPT, 0);
		world.mailbox = NULL;
		memset(mailbox, 0, sizeof mailbox);
	}
	let_go();
	if (strncmp(line, "bye", 3) == 0)
		code = send(ends[1], goodbye, sizeof goodbye, 0) < 0 ? GORUN_LOST : gorun_finalize();
	ssize_t sent = recv(ends[1], got, sizeof got, MSG_DONTWAIT);
	drop();
	close(ends[1]);
	return code < 0 ? -1 : code == GORUN_OK && sent == (ssize_t)n && memcmp(got, want, n) == 0;
}

#define DECODED 12 /* vectors of the daemon's messages */
#define ENCODED 15 /* vectors of a rank's messages; the library sends neither ENV nor KEPT */

/* golden decodes and encodes all vectors. */
static int golden(const char *path) {
	FILE *f = fopen(path, "r");
	char line[4096], head[4096] = "";
	unsigned char b[4096];
	size_t n = 0;
	int decoded = 0, encoded = 0, wrong = 0, more = 1;
	if (!f) {
		perror(path);
		return 1;
	}
	while (more) {
		more = fgets(line, sizeof line, f) != NULL;
		if (more && *line == ' ') {
			unsigned value;
			for (const char *at = line + 2; sscanf(at, "%2x", &value) == 1 && n < sizeof b; at += 2)
				b[n++] = (unsigned char)value;
			continue;
		}
		int reads = *head && n ? decodes(head, b, n) : -1, writes = *head && n ? encodes(head, b, n) : -1;
		decoded += reads >= 0, encoded += writes >= 0;
		if (reads == 0 || writes == 0)
			wrong++, fprintf(stderr, "%s differently: %s", reads == 0 ? "decoded" : "encoded", head);
		memcpy(head, more && *line != '#' && *line != '\n' ? line : "", more && *line != '#' && *line != '\n' ? strlen(line) + 1 : 1);
		n = 0;
	}
	fclose(f);
	if (decoded != DECODED || encoded != ENCODED)
		fprintf(stderr, "%d vectors decoded, not %d; %d encoded, not %d\n", decoded, DECODED, encoded, ENCODED);
	return wrong || decoded != DECODED || encoded != ENCODED;
}

/* A daemon that takes messages out of the mailbox. */
struct taker {
	int fd, messages, wrong;
	uint64_t taken;
};

static unsigned char byte_of(int message, size_t at) { return (unsigned char)((size_t)message * 31 + at * 7 + at / 256); }

static void fill(unsigned char *b, int message, size_t n) {
	for (size_t at = 0; at < n; at++)
		b[at] = byte_of(message, at);
}

/* take_mail takes the next message, and reports false if it is another one than that of some length, 0 for any. */
static int take_mail(struct taker *t, size_t bytes) {
	uint64_t n = 0, put = __atomic_load_n((uint64_t *)(void *)(mailbox + MAILBOX_PUT), __ATOMIC_ACQUIRE);
	for (size_t at = 0; at < 8; at++)
		((unsigned char *)&n)[at] = mailbox[MAILBOX_DATA + (t->taken + at) % MAILBOX_BYTES];
	uint64_t end = t->taken + (8 + n + 7) / 8 * 8;
	int wrong = n > MAX_MESSAGE || (bytes && n != bytes) || end > put;
	for (size_t at = 0; !wrong && at < n; at++)
		wrong = mailbox[MAILBOX_DATA + (t->taken + 8 + at) % MAILBOX_BYTES] != byte_of(t->messages, at);
	if (wrong)
		fprintf(stderr, "message %d, of %zu bytes, lies otherwise in the mailbox\n", t->messages, (size_t)n);
	t->messages++, t->wrong |= wrong, t->taken = end;
	__atomic_store_n((uint64_t *)(void *)(mailbox + MAILBOX_TAKEN), end, __ATOMIC_RELEASE);
	return !wrong;
}

/* taking takes a few messages, and then no more until the rank, which waits for room, asks for it; at last those that are left. */
static void *taking(void *of) {
	struct taker *t = of;
	unsigned char b[8];
	for (int ends = 0; !ends && !t->wrong;) {
		ends = recv(t->fd, b, sizeof b, 0) != 8 || get32(b) != MAIL;
		uint64_t put = __atomic_load_n((uint64_t *)(void *)(mailbox + MAILBOX_PUT), __ATOMIC_ACQUIRE), first = t->taken;
		while (!t->wrong && t->taken < put && (ends || t->taken < first + MAILBOX_BYTES / 3))
			take_mail(t, 0);
	}
	if (t->wrong)
		shutdown(t->fd, SHUT_RDWR); /* the rank waits no longer */
	return NULL;
}

/* mailing: messages lie in the mailbox one after the other, round its end too, and only a daemon that sleeps is woken. */
static int mailing(void) {
	static unsigned char b[MAX_MESSAGE];
	int ends[2], wakes = 0, sleeps = 0;
	struct taker t = {0};
	pthread_t slow;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends))
		return 1;
	world.fd = ends[0], world.mailbox = mailbox, world.out = b;
	for (int i = 0; i < 1000; i++) {
		size_t bytes = 8 + chance(i % 50 ? 300 : MAX_MESSAGE - 8);
		fill(b, i, bytes);
		int sleeping = chance(2);
		put32(mailbox + MAILBOX_ASLEEP, (uint32_t)sleeping);
		sleeps += sleeping;
		if (send_message(bytes))
			return 1;
		wakes += recv(ends[1], b, sizeof b, MSG_DONTWAIT) == 8 && get32(b) == MAIL;
		if (!take_mail(&t, bytes) || get64(mailbox + MAILBOX_PUT) != t.taken)
			return 1;
	}
	t.fd = ends[1];
	if (pthread_create(&slow, NULL, taking, &t))
		return 1;
	for (int i = 1000; i < 2000; i++) {
		size_t bytes = 8 + chance(3000);
		fill(b, i, bytes);
		if (send_message(bytes))
			return 1;
	}
	put32(b, BYE);
	if (send(ends[0], b, 8, 0) < 0 || pthread_join(slow, NULL) || t.wrong || t.messages != 2000)
		return 1;
	close(ends[1]); /* the daemon has ended: a mailbox that stays full is no reason to wait */
	for (int i = 0; i < 1000; i++)
		if (send_message(1000))
			return 1;
	close(ends[0]);
	world.fd = -1, world.mailbox = NULL, world.out = NULL;
	return wakes != sleeps || t.taken < 8 * MAILBOX_BYTES;
}

int main(int argc, char **argv) {
	if (argc != 2) {
		fprintf(stderr, "give the file of golden vectors\n");
		return 1;
	}
	if (golden(argv[1]) || mailing() || deserting() || counting_in_slots() || counting_one_wait())
		return 1;
	unsigned char buffer[256];
	int accepted = 0, slots = 0, wide = 0, tensors = 0;
	unsigned char *own = malloc(2048), *others = malloc(4096);
	struct slot slot = {0};
	world.slots_bytes = 8192;
	world.slots = malloc(world.slots_bytes);
	if (!own || !others || !world.slots)
		return 1;
	*add_region(&world.arena) = (struct region){.number = 1, .data = own, .bytes = 2048};
	*add_region(&world.seen) = (struct region){.number = 1, .data = others, .bytes = 4096, .rank = 1};
	for (int round = 0; round < 300000; round++) {
		gorun_handle handle;
		struct request request = {.number = chance(3)};
		world.state = JOINED;
		world.lost = 0;
		world.size = 2;
		while (world.count < 2)
			if (!open_operation(1, &handle))
				return 1;
		for (int i = 0; i < 2; i++)
			world.operations[i].stage = chance(4) ? OPEN : UNUSED;
		slot.state = OFFERED;
		world.operations[0].slot = &slot;
		slot.type = GORUN_FLOAT32, slot.bytes = 4 * (size_t)chance(300);
		slot.may_wide = chance(2), slot.in_region = slot.out_region = 1;
		world.local_size = 1 + (int)chance(4);
		world.slots_awaited = chance(2);
		world.mail_awaited = (int)chance(2);
		world.requests = chance(2) ? &request : NULL;
		size_t n = message(buffer);
		for (uint32_t damage = chance(4); damage; damage--)
			buffer[chance((uint32_t)n)] = (unsigned char)chance(256);
		if (chance(4) == 0)
			n = chance((uint32_t)n + 8);
		if (n < 8)
			continue; /* receive refuses those */
		unsigned char *exact = malloc(n); /* so that one byte too far is seen */
		if (!exact)
			return 1;
		memcpy(exact, buffer, n);
		accepted += on_message(exact, n, -1) == GORUN_OK;
		free(exact);
		if (slot.state == TAKEN) { /* then all of it is there */
			memset(slot.words, 0, (size_t)world.local_size * (LINE + 2 * slot.stride));
			slots++;
		}
		if (slot.state == TAKEN && slot.wide && world.local_size > 1) { /* rank 1 may say what it likes of its tensor: it lies in memory */
			wide++;
			for (int try = 0; try < 20; try++) {
				put32(slot.words + LINE + 16, chance(3));
				put64(slot.words + LINE + 24, chance(2) ? chance(5000) : UINT64_MAX - chance(3000));
				unsigned char *t = tensor(&slot, 1, 16, 24);
				if (t)
					memset(t, 0, slot.bytes), tensors++;
			}
		}
		for (int i = 0; i < 2; i++)
			close_operation(&world.operations[i]);
	}
	munmap(world.operations, MAX_IN_FLIGHT * sizeof *world.operations);
	free(world.slots);
	free(world.arena.list);
	free(world.seen.list);
	free(own);
	free(others);
	printf("C, damaged messages: %d accepted, %d with a slot, %d of them wide, %d tensors in them\n", accepted, slots, wide, tensors);
	return accepted < 1000 || slots < 100 || wide < 20 || tensors < 3; /* or it would test nothing */
}

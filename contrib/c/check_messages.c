/* Decodes the golden vectors of the daemon's messages, whose file is its argument, and then throws damaged messages at the
 * decoder: it may give up, but not read or write where it must not, which the sanitizers watch. `make c` runs it. */
#include "gorun.c"

static uint64_t state = 1;

static uint32_t chance(uint32_t n) {
	state = state * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(state >> 33) % n;
}

/* message writes a sound message of some type and returns its length. */
static size_t message(unsigned char *b) {
	static const uint32_t types[] = {WELCOME, REGION, FAIL, COMPLETE, COMPLETE, COMPLETE, GOODBYE, GONE, SLOTS, WAKE, SHOW, HIDE, COMPLETED, 99};
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
	case SLOTS:
		put64(b + 8, 8192);
		return 16;
	case GONE:
		put32(b + 8, 7);
		return 23;
	}
	return 8;
}

/* deserting: who has left a wide slot in the middle is named, once nobody else writes any more. */
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
		    strcmp(gorun_error(), "allreduce grad: rank 1, 3 of this host ended amid it, and the tensor holds no result") != 0;
	if (wrong)
		fprintf(stderr, "deserted, early %d, then %d: code %d, %s\n", early, then, code, gorun_error());
	free(world.slots);
	world.slots = NULL;
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

/* decodes feeds a vector to the decoder and compares what it made of it; -1 for a message that is not the daemon's. Handles
 * of the vectors become that of the one operation that is open. */
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
		     world.batches == ((number_of(line, "flags") & BATCH_TAKEN) != 0);
	} else if (strncmp(line, "region ", 7) == 0) {
		struct request r = {.number = (uint32_t)number_of(line, "request")};
		world.requests = &r; /* without a descriptor it cannot be mapped, which is found out last */
		ok = on_message(b, n, -1) == GORUN_OK && r.answered && r.region.number == number_of(line, "region") &&
		     (int64_t)r.region.bytes == number_of(line, "bytes");
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
		ok = on_message(b, n, -1) == number_of(line, "code") && world.lost == number_of(line, "code") && is_text(line, "text", gorun_error());
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

/* golden decodes all vectors of the daemon's messages. */
static int golden(const char *path) {
	FILE *f = fopen(path, "r");
	char line[4096], head[4096] = "";
	unsigned char b[4096];
	size_t n = 0;
	int seen = 0, wrong = 0, more = 1;
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
		int ok = *head && n ? decodes(head, b, n) : -1;
		seen += ok >= 0;
		if (ok == 0)
			wrong++, fprintf(stderr, "decoded otherwise: %s", head);
		memcpy(head, more && *line != '#' && *line != '\n' ? line : "", more && *line != '#' && *line != '\n' ? strlen(line) + 1 : 1);
		n = 0;
	}
	fclose(f);
	if (seen != 11)
		fprintf(stderr, "%d vectors of the daemon, not 11\n", seen);
	return wrong || seen != 11;
}

int main(int argc, char **argv) {
	if (argc != 2) {
		fprintf(stderr, "give the file of golden vectors\n");
		return 1;
	}
	if (golden(argv[1]) || deserting())
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
		slot.type = GORUN_FLOAT32, slot.count = chance(300), slot.bytes = 4 * (size_t)slot.count;
		slot.may_wide = chance(2), slot.in_region = slot.out_region = 1;
		world.local_size = 1 + (int)chance(4);
		world.slots_awaited = chance(2);
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
		if (slot.state == TAKEN && slot.wide && world.local_size > 1) { /* whatever rank 1 says of its tensor, it is in memory */
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
	return accepted < 1000 || slots < 100 || wide < 20 || tensors < 3; /* else it tests nothing */
}

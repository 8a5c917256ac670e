/* Throws damaged messages of a daemon at the decoder: it may give up, but not read or write where it must not, which the
 * sanitizers watch. `make c` runs it. */
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
	int then = all_reduced(&slot), code = desert(&slot);
	int wrong = early != 0 || then != -1 || code != GORUN_ABORTED ||
		    strcmp(gorun_error(), "allreduce grad: rank 1, 3 of this host ended amid it, and the tensor holds no result") != 0;
	if (wrong)
		fprintf(stderr, "deserted, early %d, then %d: code %d, %s\n", early, then, code, gorun_error());
	free(world.slots);
	world.slots = NULL;
	return wrong;
}

int main(void) {
	if (deserting())
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
		struct region fresh = {0};
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
		world.operations[0].wide = chance(2);
		world.operations[0].call = (struct call){.kind = ALLREDUCE, .in = own, .out = own, .dims = {chance(300)}, .type = GORUN_FLOAT32};
		world.local_size = 1 + (int)chance(4);
		world.slots_awaited = chance(2);
		world.answered = chance(2) ? &fresh : NULL;
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
	free(world.operations);
	free(world.slots);
	free(world.arena.list);
	free(world.seen.list);
	free(own);
	free(others);
	printf("C, damaged messages: %d accepted, %d with a slot, %d of them wide, %d tensors in them\n", accepted, slots, wide, tensors);
	return accepted < 1000 || slots < 100 || wide < 20 || tensors < 3; /* else it tests nothing */
}

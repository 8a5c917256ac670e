/* A part of gorun.c: operations in a world of one. */

/* defined_for reports whether a reduction is defined for a type, by the rules that the engine has in larger worlds. */
static int defined_for(int op, gorun_type type, int kind) {
	if (op == GORUN_ADASUM)
		return kind == ALLREDUCE && type >= GORUN_FLOAT16 && type <= GORUN_FLOAT64;
	if (op >= GORUN_BIT_AND && op <= GORUN_LOGICAL_XOR)
		return type < GORUN_FLOAT16 || type == GORUN_BOOL;
	if (op == GORUN_MIN || op == GORUN_MAX)
		return type < GORUN_COMPLEX64;
	return op >= GORUN_AVERAGE && op <= GORUN_PRODUCT && type <= GORUN_COMPLEX128;
}

static float bits_float(uint32_t bits) {
	float f;
	memcpy(&f, &bits, 4);
	return f;
}

static uint32_t float_bits(float f) {
	uint32_t bits;
	memcpy(&bits, &f, 4);
	return bits;
}

static float from_half(uint16_t h) {
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;
	float f = rest < 0x400 ? (float)rest * 0x1p-24f : bits_float(rest >= 0x7c00 ? 0x7f800000 | rest << 13 : (rest << 13) + (112u << 23));
	return bits_float(sign | float_bits(f));
}

/* Rounds to the nearest, to even if halfway, as to_brain does. */
static uint16_t to_half(float f) {
	uint32_t bits = float_bits(f), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
	if (rest > 0x7f800000)
		return (uint16_t)(sign | 0x7e00);
	if (rest >= 0x477ff000) /* 65520: halfway to the first number that is too large */
		return (uint16_t)(sign | 0x7c00);
	if (rest < 0x38800000) /* below 2**-14 numbers are 2**-24 apart: adding a float with that spacing rounds to it */
		return (uint16_t)(sign | (float_bits(bits_float(rest) + 0.5f) - float_bits(0.5f)));
	return (uint16_t)(sign | (rest + 0xfff + (rest >> 13 & 1) - (112u << 23)) >> 13);
}

static uint16_t to_brain(float f) {
	uint32_t bits = float_bits(f);
	if (f != f)
		return 0x7fc0;
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#define SCALE_ALL(type, load, store)                                                                                  \
	for (type *x = data, *end = x + bytes / sizeof *x; x < end; x++)                                              \
	*x = (type)store((double)load(*x) * by)
#define SAME(x) (x)
#define FROM_BRAIN(x) bits_float((uint32_t)(x) << 16)
#define TO_HALF(x) to_half((float)(x))
#define TO_BRAIN(x) to_brain((float)(x))

/* scale multiplies a tensor in a world of one, as the engine does in larger ones. */
static int scale(const gorun_call *c, void *data, size_t bytes) {
	double by = c->prescale * c->postscale;
	if (by == 1)
		return GORUN_OK;
	switch (c->type) {
	case GORUN_UINT8: SCALE_ALL(uint8_t, SAME, SAME); break;
	case GORUN_INT8: SCALE_ALL(int8_t, SAME, SAME); break;
	case GORUN_UINT16: SCALE_ALL(uint16_t, SAME, SAME); break;
	case GORUN_INT16: SCALE_ALL(int16_t, SAME, SAME); break;
	case GORUN_UINT32: SCALE_ALL(uint32_t, SAME, SAME); break;
	case GORUN_INT32: SCALE_ALL(int32_t, SAME, SAME); break;
	case GORUN_UINT64: SCALE_ALL(uint64_t, SAME, SAME); break;
	case GORUN_INT64: SCALE_ALL(int64_t, SAME, SAME); break;
	case GORUN_FLOAT16: SCALE_ALL(uint16_t, from_half, TO_HALF); break;
	case GORUN_BFLOAT16: SCALE_ALL(uint16_t, FROM_BRAIN, TO_BRAIN); break;
	case GORUN_FLOAT32: case GORUN_COMPLEX64: SCALE_ALL(float, SAME, SAME); break;
	case GORUN_FLOAT64: case GORUN_COMPLEX128: SCALE_ALL(double, SAME, SAME); break;
	default: return fail(GORUN_INVALID, "submit %s %s: element type %d cannot be scaled", kinds[(int)c->kind], c->name, (int)c->type);
	}
	return GORUN_OK;
}

/* alone completes an operation in a world of one, where every reduction is the input. */
static int alone(struct operation *o, const gorun_call *c, size_t bytes) {
	const char *kind = kinds[(int)c->kind];
	int k = (int)c->kind, rows = k == ALLGATHER || k == ALLTOALL || k == REDUCESCATTER || k == GATHER || k == SCATTER;
	if (reduces(k) && !defined_for((int)c->op, c->type, k))
		return fail(GORUN_INVALID, "submit %s %s: reduction %d is not defined for type %d", kind, c->name, (int)c->op, (int)c->type);
	if (k == SEND || k == RECV || k == ADD_GROUP || k == REMOVE_GROUP)
		return fail(GORUN_INVALID, "submit %s %s: there is nobody else in a world of 1", kind, c->name);
	if ((k == BROADCAST || k == REDUCE || k == GATHER || k == SCATTER) && c->root != 0)
		return fail(GORUN_INVALID, "submit %s %s: root rank %d is not in a world of 1", kind, c->name, c->root);
	if (rows && !c->ndim)
		return fail(GORUN_INVALID, "submit %s %s: a scalar has no rows: give it one", kind, c->name);
	if (c->nsplits && (c->nsplits != 1 || c->splits[0] < 0 || c->splits[0] > c->dims[0]))
		return fail(GORUN_INVALID, "submit %s %s: splits are %d rows of %lld", kind, c->name, (int)c->splits[0],
			    (long long)c->dims[0]);
	if (c->set)
		return fail(GORUN_INVALID, "submit %s %s: there is no process set %d in a world of 1", kind, c->name, c->set);
	end_operation(o);
	for (size_t at = 0, n; has_target(k) && at < bytes; at += n) {
		gorun_piece p = piece_at(c, at, bytes - at);
		n = p.bytes;
		memmove(p.out, p.in, n);
		int code = k == ALLREDUCE ? scale(c, p.out, n) : GORUN_OK;
		if (code)
			return code;
	}
	if (has_target(k))
		return GORUN_OK;
	if (k == JOIN) {
		if (!(o->counts = calloc(1, sizeof *o->counts)))
			return fail(GORUN_MEMORY, "submit %s: out of memory", kind);
		o->rows = o->ncounts = 1;
		return GORUN_OK;
	}
	if (!has_result(k))
		return GORUN_OK;
	o->rows = c->nsplits ? c->splits[0] : c->ndim ? c->dims[0] : 1;
	if (c->nsplits)
		bytes = c->splits[0] ? bytes / (size_t)c->dims[0] * (size_t)c->splits[0] : 0;
	o->own = malloc(bytes ? bytes : 1);
	o->counts = reduces(k) ? NULL : malloc(sizeof *o->counts);
	if (!o->own || (!reduces(k) && !o->counts))
		return fail(GORUN_MEMORY, "submit %s %s: out of memory", kind, c->name);
	if (bytes)
		memcpy(o->own, c->in, bytes);
	o->data = o->own;
	o->data_bytes = bytes;
	if (o->counts)
		o->counts[0] = o->rows, o->ncounts = 1;
	return reduces(k) ? scale(c, o->own, bytes) : GORUN_OK;
}

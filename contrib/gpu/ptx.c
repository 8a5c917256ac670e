// Kernels for the stand-in for libcuda.so.1: it reads the text in PTX that gorun gives the driver, and runs it thread
// by thread. It knows the instructions that contrib/python/gorun/gpu/kernels.py writes, with the meaning that NVIDIA's
// description gives them, and refuses every other text.
#define _GNU_SOURCE
#include "api.h"
#include "standin.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

CUresult harmless(void); // of cuda.c

#define MOST_PARAMETERS 80
#define CLASSES "rdfghp" // of registers

// The first word of an instruction, and the last, which is its type.
enum base { ADD, AND, BFE, BFI, BRA, CVT, LD, MAX, MIN, MOV, MUL, OR, RET, SELP, SETP, SHL, SHR, ST };
static const char *const bases[] = {
	"add", "and", "bfe", "bfi", "bra", "cvt", "ld", "max", "min", "mov", "mul", "or", "ret", "selp", "setp", "shl", "shr", "st"};
enum type { NONE, B32, U32, S32, B64, U64, S64, F16, F32, F64 };
static const char *const types[] = {"", "b32", "u32", "s32", "b64", "u64", "s64", "f16", "f32", "f64"};

static const char *const known[] = {
	"add.u32", "add.s32", "add.u64", "add.s64", "add.rn.f32", "add.rn.f64", "and.b32", "bfe.s32", "bfe.u32", "bfi.b32",
	"bra", "cvt.u64.u32", "cvt.f32.f16", "cvt.rn.f16.f32", "cvt.rn.f32.f64", "ld.param.u64", "ld.param.f64",
	"ld.global.v2.b64", "ld.global.v2.f64", "ld.global.v4.b32", "max.s32", "max.u32", "max.s64", "max.u64", "max.f32",
	"max.f64", "min.s32", "min.u32", "min.s64", "min.u64", "min.f32", "min.f64", "mov.u32", "mov.b32", "mul.wide.u32",
	"mul.lo.s32", "mul.lo.u32", "mul.lo.s64", "mul.lo.u64", "mul.rn.f32", "mul.rn.f64", "or.b32", "ret", "selp.b32",
	"selp.f32", "selp.f64", "setp.ge.u64", "setp.nan.f32", "setp.nan.f64", "shl.b32", "shl.b64", "shr.u32",
	"st.global.v2.b64", "st.global.v2.f64", "st.global.v4.b32"};

enum where { REGISTER, NUMBER, SPECIAL, PARAMETER };

struct operand {
	enum where where;
	uint64_t value; // a number, or which register, special register or parameter
};

struct instruction {
	enum base base;
	enum type type, from; // from: of cvt, and whether mul.wide
	long unless;          // the register without which it is left out, or -1
	int count[5], operands;
	struct operand operand[5][4]; // each one or, in braces, several
	long target;
	char label[16];
};

struct CUmod_st {
	char entry[64];
	struct {
		char name[16];
	} parameter[MOST_PARAMETERS];
	int parameters;
	long first[sizeof CLASSES], registers; // of each class
	struct instruction *code;
	long length;
	struct {
		char name[16];
		long at;
	} label[8];
	int labels;
};

static int find(const char *word, size_t length, const char *const *list, int count) {
	for (int i = 0; i < count; i++)
		if (strlen(list[i]) == length && !strncmp(word, list[i], length)) return i;
	return -1;
}

#define FIND(word, length, list) find(word, length, list, (int)(sizeof list / sizeof *list))

static bool read_operand(CUmodule m, const char *word, struct operand *to) {
	static const char *const special[] = {"%ctaid.x", "%ntid.x", "%tid.x", "%nctaid.x"};
	int which = FIND(word, strlen(word), special);
	char *end;
	if (which >= 0) {
		*to = (struct operand){SPECIAL, (uint64_t)which};
	} else if (*word == '%' && strchr(CLASSES, word[1])) {
		*to = (struct operand){REGISTER, (uint64_t)(m->first[strchr(CLASSES, word[1]) - CLASSES] + strtol(word + 2, &end, 10))};
		return !*end && (long)to->value < m->registers;
	} else if (!strncmp(word, "0f", 2) || !strncmp(word, "0d", 2)) {
		*to = (struct operand){NUMBER, strtoull(word + 2, &end, 16)};
		return !*end;
	} else if (*word >= '0' && *word <= '9') {
		*to = (struct operand){NUMBER, strtoull(word, &end, 0)};
		return !*end;
	} else {
		for (which = 0; which < m->parameters && strcmp(word, m->parameter[which].name); which++) {}
		*to = (struct operand){PARAMETER, (uint64_t)which};
		return which < m->parameters;
	}
	return true;
}

// read_instruction reads "@%p0 name a, {b, c}, [d]".
static bool read_instruction(CUmodule m, char *text, struct instruction *to) {
	memset(to, 0, sizeof *to);
	to->unless = -1;
	if (*text == '@') {
		struct operand condition;
		if (!read_operand(m, strsep(&text, " ") + 1, &condition) || condition.where != REGISTER || !text) return false;
		to->unless = (long)condition.value;
	}
	const char *name = strsep(&text, " "), *last = strrchr(name, '.');
	if (FIND(name, strlen(name), known) < 0) return false;
	to->base = (enum base)FIND(name, strcspn(name, "."), bases);
	to->type = last ? (enum type)FIND(last + 1, strlen(last + 1), types) : NONE;
	if (to->base == CVT && last) to->from = to->type, to->type = (enum type)FIND(last - 3, 3, types);
	if (!strncmp(name, "mul.wide", 8)) to->from = U32;
	if (to->base == BRA) {
		snprintf(to->label, sizeof to->label, "%s", text ? text : "");
		return true;
	}
	bool several = false;
	for (char *word; text && (word = strsep(&text, ",")); ) {
		word += strspn(word, " ");
		if (!several && to->operands++ == 5) return false;
		if (*word == '{') several = true, word++;
		bool end = word[strlen(word) - 1] == '}';
		if (*word == '[') word++;
		word[strcspn(word, "}]")] = 0;
		int *count = &to->count[to->operands - 1];
		if (*count == 4 || !read_operand(m, word, &to->operand[to->operands - 1][(*count)++])) return false;
		if (end) several = false;
	}
	return !several;
}

static bool read_line(CUmodule m, char *line) {
	line += strspn(line, "\t ");
	size_t length = strlen(line);
	if (!strcmp(line, "") || !strcmp(line, ")") || !strcmp(line, "{") || !strcmp(line, "}")) return true;
	if (!strcmp(line, ".version 6.0") || !strcmp(line, ".target sm_60") || !strcmp(line, ".address_size 64")) return true;
	if (sscanf(line, ".visible .entry %63[a-z](", m->entry) == 1) return true;
	char kind[8], class;
	long count;
	if (!strncmp(line, ".param", 6)) {
		if (m->parameters == MOST_PARAMETERS) return false;
		return sscanf(line, ".param .%7[a-z0-9] %15[a-z0-9]", kind, m->parameter[m->parameters++].name) == 2;
	}
	if (sscanf(line, ".reg .%7[a-z0-9] %%%c<%ld>;", kind, &class, &count) == 3 && strchr(CLASSES, class)) {
		m->first[strchr(CLASSES, class) - CLASSES] = m->registers;
		m->registers += count;
		return true;
	}
	if (line[length - 1] == ':') {
		if (m->labels == 8) return false;
		m->label[m->labels].at = m->length;
		snprintf(m->label[m->labels++].name, sizeof m->label[0].name, "%.*s", (int)length - 1, line);
		return true;
	}
	if (line[length - 1] != ';') return false;
	line[length - 1] = 0;
	struct instruction *code = realloc(m->code, (size_t)(m->length + 1) * sizeof *code);
	if (!code) return false;
	m->code = code;
	return read_instruction(m, line, &code[m->length++]);
}

static bool read_text(CUmodule m, const char *image) {
	char *copy = strdup(image), *text = copy, *line;
	bool fine = copy != NULL;
	while (fine && (line = strsep(&text, "\n"))) fine = read_line(m, line);
	free(copy);
	for (long i = 0; fine && i < m->length; i++) {
		struct instruction *one = &m->code[i];
		if (one->base != BRA) continue;
		int at = 0;
		while (at < m->labels && strcmp(m->label[at].name, one->label)) at++;
		fine = at < m->labels;
		one->target = fine ? m->label[at].at : 0;
	}
	return fine && *m->entry;
}

CUresult cuModuleLoadData(CUmodule *module, const void *image) {
	if (harmless()) return harmless();
	if (fault("noptx")) return CUDA_ERROR_INVALID_PTX;
	CUmodule m = calloc(1, sizeof *m);
	if (!m) return CUDA_ERROR_OUT_OF_MEMORY;
	if (!read_text(m, image)) {
		free(m->code);
		free(m);
		return CUDA_ERROR_INVALID_PTX;
	}
	*module = m;
	return CUDA_SUCCESS;
}

CUresult cuModuleUnload(CUmodule module) {
	free(module->code);
	free(module);
	return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
	if (strcmp(name, module->entry)) return CUDA_ERROR_NOT_FOUND;
	*function = (CUfunction)module;
	return CUDA_SUCCESS;
}

struct launch {
	CUmodule module;
	uint64_t special[4]; // as in read_operand
	uint64_t blocks;
	uint64_t parameter[MOST_PARAMETERS];
};

static float single(uint64_t bits) {
	float value;
	uint32_t low = (uint32_t)bits;
	memcpy(&value, &low, sizeof value);
	return value;
}

static uint64_t bits_of(float value) {
	uint32_t bits;
	memcpy(&bits, &value, sizeof bits);
	return value != value ? 0x7fffffff : bits; // NVIDIA's NaN
}

static double wide(uint64_t bits) {
	double value;
	memcpy(&value, &bits, sizeof value);
	return value;
}

static uint64_t wide_bits_of(double value) {
	uint64_t bits;
	memcpy(&bits, &value, sizeof bits);
	return value != value ? 0x7fffffffffffffff : bits;
}

// least returns the smaller of two numbers, with -0 below 0, or the one that is no NaN; or the greater.
static double least(double a, double b, bool smaller) {
	if (a != a || b != b) return a != a ? b : a;
	if (a == b) return signbit(a) == smaller ? a : b;
	return (a < b) == smaller ? a : b;
}

static uint64_t pick(const struct instruction *i, uint64_t a, uint64_t b) {
	bool smaller = i->base == MIN;
	switch (i->type) {
	case F32: return bits_of((float)least(single(a), single(b), smaller));
	case F64: return wide_bits_of(least(wide(a), wide(b), smaller));
	case S32: return ((int32_t)a < (int32_t)b) == smaller ? a : b;
	case S64: return ((int64_t)a < (int64_t)b) == smaller ? a : b;
	default: return (a < b) == smaller ? a : b;
	}
}

static uint64_t sum(enum type type, uint64_t a, uint64_t b) {
	if (type == F32) return bits_of(single(a) + single(b));
	if (type == F64) return wide_bits_of(wide(a) + wide(b));
	return type == U64 || type == S64 ? a + b : (uint32_t)(a + b);
}

static uint64_t product(const struct instruction *i, uint64_t a, uint64_t b) {
	if (i->type == F32) return bits_of(single(a) * single(b));
	if (i->type == F64) return wide_bits_of(wide(a) * wide(b));
	if (i->type == U64 || i->type == S64 || i->from) return a * b;
	return (uint32_t)(a * b);
}

static uint64_t convert(const struct instruction *i, uint64_t a) {
	uint16_t half = (uint16_t)a;
	_Float16 value;
	if (i->from == F16) {
		memcpy(&value, &half, sizeof value);
		return bits_of((float)value);
	}
	if (i->type == F16) {
		value = (_Float16)single(a);
		memcpy(&half, &value, sizeof half);
		return single(a) != single(a) ? 0x7fff : half;
	}
	return i->from == F64 ? bits_of((float)wide(a)) : a;
}

static uint64_t field(const struct instruction *i, uint64_t a, uint64_t at, uint64_t bits) {
	uint64_t value = (uint32_t)a >> at & ((1u << bits) - 1);
	if (i->type == S32 && value >> (bits - 1)) value |= ~0u << bits;
	return (uint32_t)value;
}

static uint64_t insert(uint64_t a, uint64_t b, uint64_t at, uint64_t bits) {
	uint32_t mask = (uint32_t)((((uint64_t)1 << bits) - 1) << at);
	return ((uint32_t)b & ~mask) | ((uint32_t)(a << at) & mask);
}

static uint64_t compute(const struct instruction *i, uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
	switch (i->base) {
	case ADD: return sum(i->type, a, b);
	case AND: return a & b;
	case BFE: return field(i, a, b, c);
	case BFI: return insert(a, b, c, d);
	case CVT: return convert(i, a);
	case MAX:
	case MIN: return pick(i, a, b);
	case MUL: return product(i, a, b);
	case OR: return a | b;
	case SELP: return c ? a : b;
	case SETP: return i->type == F32 ? isunordered(single(a), single(b)) : i->type == F64 ? isunordered(wide(a), wide(b)) : a >= b;
	case SHL: return i->type == B64 ? a << b : (uint32_t)(a << b);
	case SHR: return (uint32_t)a >> b;
	default: return a;
	}
}

// transfer loads or stores several registers.
static void transfer(const struct instruction *i, uint64_t *registers, char *memory) {
	bool load = i->base == LD;
	const struct operand *each = i->operand[load ? 0 : 1];
	size_t size = i->type == B32 ? 4 : 8;
	for (int k = 0; k < i->count[load ? 0 : 1]; k++) {
		uint64_t *one = &registers[each[k].value];
		if (load) *one = 0, memcpy(one, memory + (size_t)k * size, size);
		else memcpy(memory + (size_t)k * size, one, size);
	}
}

static uint64_t value_of(const struct launch *l, const uint64_t *registers, const struct operand *o) {
	switch (o->where) {
	case REGISTER: return registers[o->value];
	case SPECIAL: return l->special[o->value];
	case PARAMETER: return l->parameter[o->value];
	default: return o->value;
	}
}

static void run_thread(const struct launch *l, uint64_t *registers) {
	for (long at = 0;;) {
		const struct instruction *i = &l->module->code[at++];
		if (i->unless >= 0 && !registers[i->unless]) continue;
		if (i->base == RET) return;
		if (i->base == BRA) {
			at = i->target;
			continue;
		}
		uint64_t in[4] = {0};
		for (int k = 1; k < i->operands; k++) in[k - 1] = value_of(l, registers, &i->operand[k][0]);
		uint64_t *to = &registers[i->operand[0][0].value];
		if (i->base == ST) transfer(i, registers, (char *)(uintptr_t)*to);
		else if (i->base == LD && i->operand[1][0].where == REGISTER) transfer(i, registers, (char *)(uintptr_t)in[0]);
		else if (i->base == MOV && i->count[0] == 2) {
			*to = in[0] & 0xffff;
			registers[i->operand[0][1].value] = in[0] >> 16 & 0xffff;
		} else if (i->base == MOV && i->count[1] == 2) *to = in[0] | value_of(l, registers, &i->operand[1][1]) << 16;
		else *to = compute(i, in[0], in[1], in[2], in[3]);
	}
}

static void run_kernel(void *data) {
	struct launch *l = data;
	uint64_t *registers = calloc((size_t)l->module->registers + 1, sizeof *registers);
	for (l->special[0] = 0; registers && l->special[0] < l->blocks; l->special[0]++)
		for (l->special[2] = 0; l->special[2] < l->special[1]; l->special[2]++) run_thread(l, registers);
	free(registers);
	free(l);
}

CUresult cuLaunchKernel(CUfunction function, unsigned int blocks, unsigned int blocks_y, unsigned int blocks_z,
	unsigned int threads, unsigned int threads_y, unsigned int threads_z, unsigned int shared, CUstream stream,
	void **parameters, void **extra) {
	if (blocks < 1 || blocks_y != 1 || blocks_z != 1 || threads < 1 || threads > 1024 || threads_y != 1 || threads_z != 1)
		return CUDA_ERROR_INVALID_VALUE;
	if (shared || extra) return CUDA_ERROR_NOT_SUPPORTED;
	struct launch *l = calloc(1, sizeof *l);
	if (!l) return CUDA_ERROR_OUT_OF_MEMORY;
	*l = (struct launch){(CUmodule)function, {0, threads, 0, blocks}, blocks, {0}};
	for (int i = 0; i < l->module->parameters; i++) memcpy(&l->parameter[i], parameters[i], sizeof l->parameter[i]);
	CUresult result = cuLaunchHostFunc(stream, run_kernel, l);
	if (result) free(l);
	return result;
}

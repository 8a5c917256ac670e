/* For LD_PRELOAD before the sanitizers' libraries (`make frameworks`): MPItrampoline loads libgorun with RTLD_DEEPBIND, with which
 * they end the program, as they could not replace functions of the C library there. */
#define _GNU_SOURCE
#include <dlfcn.h>

void *dlopen(const char *file, int mode) {
	void *(*next)(const char *, int);
	*(void **)&next = dlsym(RTLD_NEXT, "dlopen");
	return next(file, mode & ~RTLD_DEEPBIND);
}

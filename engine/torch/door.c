//go:build cgo

#include "door.h"

#include <dlfcn.h>
#include <stdio.h>

struct door door;

const char *door_open(const char *path) {
  static __thread char missing[128];
  void *library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
  if (library == NULL) return dlerror();
#define X(name)                                                          \
  *(void **)(&door.name) = dlsym(library, "mr_" #name);                  \
  if (door.name == NULL) {                                               \
    snprintf(missing, sizeof missing, "it has no function mr_" #name);   \
    return missing;                                                      \
  }
  MR_FUNCTIONS(X)
#undef X
#define X(name) *(void **)(&door.name) = dlsym(library, "mr_" #name);
  MR_LATER(X)
#undef X
  return NULL;
}

const char *door_preload(const char *path) {
  return dlopen(path, RTLD_LAZY | RTLD_GLOBAL) == NULL ? dlerror() : NULL;
}

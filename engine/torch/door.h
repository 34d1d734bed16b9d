// door.h: the shim's functions, found at run time. Nothing links against libtorch.
#ifndef MILLRACE_DOOR_H
#define MILLRACE_DOOR_H

#include "../../native/shim/millrace.h"

#define MR_FUNCTIONS(X)                                                          \
  X(abi_version) X(init) X(error) X(info) X(find) X(call) X(full) X(from_bytes)  \
  X(data) X(item) X(leaf) X(contiguous) X(free) X(backward) X(backward_input)    \
  X(work_size) X(work_run) X(work_free) X(grad) X(set_grad) X(grad_mode)         \
  X(set_threads) X(owners) X(set_owner) X(adopt) X(memory) X(reset_peak)         \
  X(trim) X(sum_into)

// The functions that a library lacks if it was built without Gloo.
#define MR_LATER(X)                                                               \
  X(gloo_new) X(gloo_said) X(gloo_told) X(gloo_connect) X(gloo_sum) X(gloo_end) X(gloo_free)

struct door {
#define X(name) __typeof__(&mr_##name) name;
  MR_FUNCTIONS(X)
  MR_LATER(X)
#undef X
};

extern struct door door;

// Opens the library at path and fills the table. It returns NULL on success, and an error text otherwise,
// which is valid until the thread's next call.
const char *door_open(const char *path);

// Loads a library whose symbols are visible to libraries loaded later. It returns NULL on success, and an
// error text otherwise.
const char *door_preload(const char *path);

// cgo cannot call through a function pointer, so there is a C function for each one that Go calls.
static inline int door_abi_version(void) { return door.abi_version(); }
static inline int door_init(void) { return door.init(); }
static inline const char *door_error(void) { return door.error(); }
static inline const char *door_info(void) { return door.info(); }
static inline mr_op *door_find(const char *name) { return door.find(name); }
static inline const int64_t *door_call(mr_op *op, const int64_t *args, int64_t words) {
  return door.call(op, args, words);
}
static inline const int64_t *door_full(int dtype, const int64_t *shape, int64_t rank, double value) {
  return door.full(dtype, shape, rank, value);
}
static inline const int64_t *door_from_bytes(int dtype, const int64_t *shape, int64_t rank,
                                             const void *data, int64_t nbytes) {
  return door.from_bytes(dtype, shape, rank, data, nbytes);
}
static inline void *door_data(int64_t tensor, int64_t *nbytes) { return door.data(tensor, nbytes); }
static inline int door_item(int64_t tensor, double *value) { return door.item(tensor, value); }
static inline const int64_t *door_leaf(int64_t tensor, int requires_grad) {
  return door.leaf(tensor, requires_grad);
}
static inline const int64_t *door_contiguous(int64_t tensor) { return door.contiguous(tensor); }
static inline void door_free(const int64_t *tensors, int64_t n) { door.free(tensors, n); }
static inline int door_backward(const int64_t *outputs, const int64_t *grads, int64_t n) {
  return door.backward(outputs, grads, n);
}
static inline mr_work *door_backward_input(const int64_t *outputs, const int64_t *grads, int64_t n) {
  return door.backward_input(outputs, grads, n);
}
static inline int64_t door_work_size(const mr_work *work) { return door.work_size(work); }
static inline int door_work_run(mr_work *work) { return door.work_run(work); }
static inline void door_work_free(mr_work *work) { door.work_free(work); }
static inline const int64_t *door_grad(int64_t leaf) { return door.grad(leaf); }
static inline int door_set_grad(int64_t leaf, int64_t grad) { return door.set_grad(leaf, grad); }
static inline int door_grad_mode(int on) { return door.grad_mode(on); }
static inline int door_set_threads(int n) { return door.set_threads(n); }
static inline int door_owners(void) { return door.owners(); }
static inline int door_set_owner(int owner) { return door.set_owner(owner); }
static inline int door_adopt(int64_t tensor, int owner) { return door.adopt(tensor, owner); }
static inline void door_memory(int owner, int64_t *bytes) { door.memory(owner, bytes); }
static inline void door_reset_peak(int owner) { door.reset_peak(owner); }
static inline void door_trim(int owner) { door.trim(owner); }
static inline int door_has_gloo(void) { return door.gloo_free != NULL; }
static inline mr_gloo *door_gloo_new(int rank, int size, const char *host) { return door.gloo_new(rank, size, host); }
static inline const void *door_gloo_said(mr_gloo *group, int64_t *nbytes) { return door.gloo_said(group, nbytes); }
static inline int door_gloo_told(mr_gloo *group, const void *data, int64_t nbytes) {
  return door.gloo_told(group, data, nbytes);
}
static inline int door_gloo_connect(mr_gloo *group) { return door.gloo_connect(group); }
static inline int door_gloo_sum(mr_gloo *group, void *const *data, const int64_t *nbytes, int64_t n, int dtype) {
  return door.gloo_sum(group, data, nbytes, n, dtype);
}
static inline void door_gloo_end(mr_gloo *group) { door.gloo_end(group); }
static inline void door_gloo_free(mr_gloo *group) { door.gloo_free(group); }
static inline int door_sum_into(void *dst, const void *src, int64_t nbytes, int dtype) {
  return door.sum_into(dst, src, nbytes, dtype);
}

#endif

/* millrace.h: the C interface to libtorch.
 *
 * Functions take tensor handles, operator handles, and arguments packed in one array of
 * 64-bit words. They return tensor handles with their type and shape, packed likewise.
 * Stages, plans and schedules are unknown here; they are in Go.
 *
 * Every function is safe to call from any thread, but the grad mode, the memory
 * owner, the result words and the error text belong to the calling thread. No C++
 * exception leaves the library: a function that can fail returns NULL or non-zero,
 * and mr_error says why.
 *
 * Functions that return tensors return an array of words, which is valid until the
 * same thread's next such call:
 *
 *   count, then for each tensor: handle, element type, rank, size[0..rank)
 *
 * A handle of 0 is an undefined tensor and has type 0 and rank 0. Each non-zero
 * handle is one reference that the caller must give back with mr_free.
 */
#ifndef MILLRACE_H
#define MILLRACE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MR_ABI_VERSION 5

#define MR_API __attribute__((visibility("default")))

/* Element types; the numbers are engine.DType's. Any other type is returned as MR_OTHER. */
enum { MR_F32 = 1, MR_F64 = 2, MR_I64 = 3, MR_U8 = 4, MR_BOOL = 5, MR_OTHER = 255 };

/* Tags of packed arguments. Each argument is its tag word and then its payload. */
enum {
  MR_NONE = 0,     /* nothing                                      */
  MR_TENSOR = 1,   /* handle                                       */
  MR_BOOLEAN = 2,  /* 0 or 1                                       */
  MR_INT = 3,      /* value                                        */
  MR_DOUBLE = 4,   /* bits of the double                           */
  MR_STRING = 5,   /* length in bytes, then the bytes, whole words */
  MR_INTS = 6,     /* count, then the values                       */
  MR_BOOLEANS = 7, /* count, then 0 or 1 each                      */
  MR_DOUBLES = 8,  /* count, then the bits of each                 */
  MR_TENSORS = 9,  /* count, then handles, 0 for none              */
  MR_DTYPE = 10    /* element type                                 */
};

typedef struct mr_op mr_op; /* lives as long as the process */

MR_API int mr_abi_version(void);

/* Installs the counting allocator. It must be called before any tensor is made. */
MR_API int mr_init(void);

/* The last error on this thread, in one line; "" if there was none. */
MR_API const char *mr_error(void);

/* Lines of "key=value" about the library: version, configuration, BLAS. */
MR_API const char *mr_info(void);

/* Finds an operator in the dispatcher by its name, such as "aten::add.Tensor". The same name gives the
 * same handle. */
MR_API mr_op *mr_find(const char *name);

/* Runs an operator. Arguments are matched by position; those left off at the end take the
 * schema's defaults. List results are flattened; numbers become rank-0 tensors. */
MR_API const int64_t *mr_call(mr_op *op, const int64_t *args, int64_t words);

/* New contiguous tensors: filled with value, or with a copy of the nbytes at data. */
MR_API const int64_t *mr_full(int dtype, const int64_t *shape, int64_t rank, double value);
MR_API const int64_t *mr_from_bytes(int dtype, const int64_t *shape, int64_t rank, const void *data,
                                    int64_t nbytes);

/* The address of a contiguous CPU tensor's first element and its size in bytes.
 * An empty tensor gives a non-NULL address that must not be read. */
MR_API void *mr_data(int64_t tensor, int64_t *nbytes);

/* The only element of a tensor as a double. */
MR_API int mr_item(int64_t tensor, double *value);

/* A new tensor on the same memory, which is a leaf: it has no history in autograd's graph. */
MR_API const int64_t *mr_leaf(int64_t tensor, int requires_grad);

/* A new handle of the tensor itself if it is contiguous, and a contiguous copy of it otherwise. */
MR_API const int64_t *mr_contiguous(int64_t tensor);

/* Gives n handles back; zeros are skipped. */
MR_API void mr_free(const int64_t *tensors, int64_t n);

/* Backward from n outputs; a zero in grads means a gradient of one for a scalar.
 * Gradients add up in the leaves; the graph is freed. */
MR_API int mr_backward(const int64_t *outputs, const int64_t *grads, int64_t n);

/* As mr_backward, but without the gradients of the weights of millrace's operators whose backward comes
 * in two halves (split.h). What is left to compute is returned. mr_work_run computes it, once;
 * mr_work_free frees it, whether it was run or not. mr_work_size is the number of operators in it. */
typedef struct mr_work mr_work;
MR_API mr_work *mr_backward_input(const int64_t *outputs, const int64_t *grads, int64_t n);
MR_API int64_t mr_work_size(const mr_work *work);
MR_API int mr_work_run(mr_work *work);
MR_API void mr_work_free(mr_work *work);

/* mr_grad is the gradient that a leaf has accumulated, undefined if none; mr_set_grad replaces it. */
MR_API const int64_t *mr_grad(int64_t leaf);
MR_API int mr_set_grad(int64_t leaf, int64_t grad);

/* Switches autograd on (1) or off (0) on this thread; returns the previous setting. */
MR_API int mr_grad_mode(int on);

/* Sets how many threads torch and the BLAS use within an operator called on this thread. */
MR_API int mr_set_threads(int n);

/* Owners of memory are 0 .. mr_owners()-1. mr_set_owner charges this thread's allocations to owner from
 * now on, and caches its blocks for owner. A thread that never calls it allocates for owner 0. */
MR_API int mr_owners(void);
MR_API int mr_set_owner(int owner);
/* Moves the charge of the tensor's storage to owner. */
MR_API int mr_adopt(int64_t tensor, int owner);
/* bytes[0] live, bytes[1] peak since the last reset, bytes[2] cached. */
MR_API void mr_memory(int owner, int64_t bytes[3]);
MR_API void mr_reset_peak(int owner);
/* Gives the owner's cached blocks back to the system. */
MR_API void mr_trim(int owner);

/* dst[i] += src[i]. The buffers need no alignment. */
MR_API int mr_sum_into(void *dst, const void *src, int64_t nbytes, int dtype);

/* Sums over processes by Gloo, which chooses the order of additions. A library may lack all of these
 * functions. One thread of each member connects its group by mr_gloo_connect. Meanwhile another thread
 * calls mr_gloo_said until it returns zero bytes, sends each result to all other members, and passes what
 * they send to mr_gloo_told. Gloo's connections are neither encrypted nor authenticated; it listens only on
 * the address host. mr_gloo_sum adds vectors of one type in place, of the same sizes at all members; only
 * one call may run at a time. mr_gloo_end ends all waiting calls and may be called on any thread;
 * mr_gloo_free must be called after all other calls have returned. */
typedef struct mr_gloo mr_gloo;
MR_API mr_gloo *mr_gloo_new(int rank, int size, const char *host);
MR_API const void *mr_gloo_said(mr_gloo *group, int64_t *nbytes);
MR_API int mr_gloo_told(mr_gloo *group, const void *data, int64_t nbytes);
MR_API int mr_gloo_connect(mr_gloo *group);
MR_API int mr_gloo_sum(mr_gloo *group, void *const *data, const int64_t *nbytes, int64_t n, int dtype);
MR_API void mr_gloo_end(mr_gloo *group);
MR_API void mr_gloo_free(mr_gloo *group);

#ifdef __cplusplus
}
#endif
#endif

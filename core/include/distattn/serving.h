#pragma once
/**
 * @file
 * Serving from C: attention of many requests at once, in caches that grow. distattn.h includes this file.
 */

#include "distattn/distattn.h"

#ifdef __cplusplus
extern "C" {
#endif

/** One rank's handle for requests of any lengths: nothing is planned, and lengths may be others in every call. */
typedef struct distattn_serving distattn_serving;

/** A request of a call: the sequence has `keys` tokens, and its last `queries` ask. Rank `owner` has their q. */
typedef struct distattn_request {
  int64_t keys, queries, owner;
} distattn_request;

/**
 * The requests of one call, the same list on all ranks, and one rank's tensors.
 * q is [queries, heads, head_dim], o [queries, heads, value_dim], lse and lse_low [heads, queries], of the requests
 * that the rank owns, one after the other. lse, lse_low and, unless the problem has it, sink_logits are null.
 * k and v are the rank's cache, of the problem's type, which is read where it lies. With pages they are
 * [pages, tokens of a page, kv_heads, dim], and `pages` has a row of pages_a_request numbers for each request: its
 * token j lies in row j % tokens of page pages[request * pages_a_request + j / tokens]. A page has 16 to 4096 tokens, a
 * multiple of 16. Entries that a request does not need are not read. Without pages, k and v are
 * [requests, tokens, kv_heads, dim].
 */
typedef struct distattn_serving_call {
  size_t struct_size;
  const distattn_request* requests;
  size_t requests_count;
  const distattn_tensor *q, *k, *v;         /**< read */
  const distattn_tensor *o, *lse, *lse_low; /**< written */
  const distattn_tensor* sink_logits;       /**< read: [heads] */
  const int32_t* pages;                     /**< null: no pages */
  size_t pages_count;                       /**< requests_count * pages_a_request */
  int64_t pages_a_request;
} distattn_serving_call;

#define DISTATTN_SERVING_CALL_INIT \
  { sizeof(distattn_serving_call), NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0 }

/**
 * Makes a handle. `problem` says what all requests have in common, and, as seq_kv and seq_q, the longest sequence and
 * the most queries of a request; it is causal, maybe with window_left. Of a sequence, blocks of `block` tokens are
 * dealt to the ranks in turn, from rank 0 on: a token stays on its rank while the sequence grows. Of the options only
 * backend, threads, local_ranks and local_rank concern it. The communicator must outlive the handle. options may be
 * null.
 */
DISTATTN_API distattn_status distattn_serving_create(const distattn_problem* problem, int64_t block,
                                                     const distattn_options* options, distattn_comm* comm,
                                                     distattn_serving** serving);
DISTATTN_API void distattn_serving_free(distattn_serving* serving);

/** Returns how many of a sequence's first `tokens` tokens this rank stores: the number of the next one in its cache, if
 * that is its own. Returns -1, and distattn_message() the reason, if the handle is null or tokens is negative. */
DISTATTN_API int64_t distattn_serving_stored(const distattn_serving* serving, int64_t tokens);

/**
 * Computes o of the rank's queries over the caches of all ranks. A collective, which ends as distattn_forward() does.
 * DISTATTN_USAGE, with the number of the request in its message, if one has more keys than its cache or a sequence, a
 * page that does not exist or that it has twice, or too few pages: nothing was then read or sent.
 */
DISTATTN_API distattn_status distattn_serve(distattn_serving* serving, const distattn_serving_call* call);

#ifdef __cplusplus
}
#endif

#pragma once
/**
 * @file
 * Exact attention over ranks, from C.
 *
 * Functions that can fail return a distattn_status; distattn_message() then says why, on one line, for the calling
 * thread, and what they were to make is null. No C++ exception leaves the library. Structs begin with struct_size:
 * start from their *_INIT value, so that a program built against an older header keeps its meaning with a newer
 * library. Handles are not thread-safe: a communicator, its groups and the attentions on them are used by one thread at
 * a time; events are for any thread. Each is given back with its *_free().
 */

#include <stddef.h>
#include <stdint.h>

/** Marks what leaves the library. */
#define DISTATTN_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/** "0.1.0": of the library that is loaded. */
DISTATTN_API const char* distattn_version(void);

typedef enum distattn_status {
  DISTATTN_OK = 0,
  DISTATTN_USAGE = 2,         /**< bad input, or a combination that is not supported */
  DISTATTN_ENVIRONMENT = 3,   /**< a backend that is not built or not usable here, out of memory */
  DISTATTN_TIMEOUT = 4,       /**< an awaited rank made no progress */
  DISTATTN_PEER = 5,          /**< another rank failed or disagreed */
  DISTATTN_INTERRUPTED = 130, /**< the run was ended from outside */
} distattn_status;

/** Why the last call of this thread that failed did; "" before any has. Valid until another fails, or the thread ends.
 */
DISTATTN_API const char* distattn_message(void);

/** Gives back text that the library allocated. */
DISTATTN_API void distattn_text_free(char* text);

/* ---- tensors ---- */

#if defined(DLPACK_VERSION) || defined(DLPACK_MAJOR_VERSION)
typedef DLTensor distattn_tensor;
#else
/**
 * DLPack's DLTensor, member by member; include dlpack.h first, and it is DLTensor itself. Host memory (device_type 1)
 * and CUDA memory (2, 3, 13); float64, float32, float16, bfloat16 (type_code 2 and 4). strides count elements; null
 * means dense rows.
 */
typedef struct distattn_tensor {
  void* data;
  struct {
    int32_t device_type, device_id;
  } device;
  int32_t ndim;
  struct {
    uint8_t code, bits;
    uint16_t lanes;
  } dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
} distattn_tensor;
#endif

typedef enum distattn_dtype { DISTATTN_FP64, DISTATTN_FP32, DISTATTN_BF16, DISTATTN_FP16 } distattn_dtype;
typedef enum distattn_pass { DISTATTN_FORWARD, DISTATTN_BACKWARD } distattn_pass;
/** How exchange and compute share time; DISTATTN_OWN_MODE: as the schedule's author meant it. */
typedef enum distattn_mode { DISTATTN_OWN_MODE, DISTATTN_OVERLAPPED, DISTATTN_SERIAL, DISTATTN_GATHERED } distattn_mode;
typedef enum distattn_side { DISTATTN_QUERIES, DISTATTN_KEYS } distattn_side;

/* ---- the problem ---- */

/** {q0 <= q < q1, k0 <= k < k1, lo <= q - k <= hi}: a part of a mask. Bands of one mask are disjoint. */
typedef struct distattn_band {
  int64_t q0, q1, k0, k1, lo, hi;
} distattn_band;

/** One exact attention; shapes are those of the whole problem, not of a rank's part. */
typedef struct distattn_problem {
  size_t struct_size;
  int64_t batch, seq_q, seq_kv;
  int32_t heads, kv_heads;
  int32_t head_dim, value_dim; /**< value_dim 0: head_dim */
  int32_t dtype;               /**< a distattn_dtype: computed with and sent; tensors of other types are converted */
  int32_t wire;                /**< a distattn_dtype: of partial results and gradients on the wire */
  double scale;                /**< 0: 1/sqrt(head_dim) */
  int32_t causal;
  int64_t window_left, window_right; /**< sliding window; -1: unlimited */
  int64_t sinks;                     /**< first keys that stay visible outside the window */
  const int64_t* cu_seqlens;         /**< packed documents: 0, ..., seq_kv; or null */
  size_t cu_seqlens_count;
  /** The mask itself: causal says nothing then, and window, sinks and documents must stay as in *_INIT. Or null. */
  const distattn_band* bands;
  size_t bands_count;
} distattn_problem;

/** One query and one key: everything else is to be set. */
#define DISTATTN_PROBLEM_INIT \
  { sizeof(distattn_problem), 1, 1, 1, 1, 1, 64, 0, DISTATTN_FP32, DISTATTN_FP32, 0.0, 1, -1, -1, 0, NULL, 0, NULL, 0 }

typedef struct distattn_options {
  size_t struct_size;
  const char* schedule; /**< "F" or "F/B", as `distattn plan` lists them; null: "auto", which rank 0 chooses for all */
  int32_t mode;         /**< a distattn_mode */
  int32_t node_size;    /**< ranks per node, consecutive; 0: the machine's, if one with nodes is named; not below */
  int32_t ahead;        /**< steps that messages between nodes may be posted early; 0: auto searches it, others none */
  int32_t backward;     /**< prepare the backward pass too */
  const char* backend;  /**< that computes; null: the best usable */
  int32_t threads;      /**< that a rank computes with; 0: its share of the cores that it may use */
  int32_t local_ranks;  /**< ranks that share this machine's cores; 0: what the launcher says, also in a group */
  /**
   * A caller's own memory for the handle's buffers, in the backend's memory space and on a boundary of 64 bytes: it is
   * asked for by distattn_attention_create() alone, and all given back when distattn_attention_free() has returned.
   * Null: the library allocates. Both or neither.
   */
  void* (*allocate)(void* user, size_t bytes);
  void (*release)(void* user, void* memory);
  void* user; /**< handed to both */
  /**
   * This rank among local_ranks, which also says its GPU; -1: what the launcher says, as for the communicator,
   * or where ranks are threads or callbacks their rank, in both cases also in a group. That GPU is the CUDA runtime's
   * current one in a thread that has called the handle; it is not set back.
   */
  int32_t local_rank;
  /**
   * A cudaStream_t of the caller's to compute on: a pass begins after what is there, and what the caller puts there
   * after a call begins after the pass. distattn_forward() also waits on the host, distattn_forward_async() does not.
   * Null: the library's own, which does not wait for the legacy default stream. Who works there gives
   * cudaStreamLegacy.
   */
  void* cuda_stream;
  int32_t deterministic; /**< gradients have the same bits in every run, where that takes longer too */
  int32_t reserved;      /**< 0 */
  /**
   * That auto chooses for, and that says what a node is: a name or file as of `distattn plan --machine`, which for auto
   * rank 0 alone reads. Null: this machine, and for auto the nodes on which a launcher started the ranks.
   */
  const char* machine;
  int64_t memory_bytes; /**< that a rank's buffers may take, both passes together; 0: what the machine has */
} distattn_options;

#define DISTATTN_OPTIONS_INIT \
  { sizeof(distattn_options), NULL, DISTATTN_OWN_MODE, 0, 0, 0, NULL, 0, 0, NULL, NULL, NULL, -1, NULL, 0, 0, NULL, 0 }

/**
 * What both passes (or, without options.backward, the forward pass) would cost on `ranks` ranks of a machine, which
 * is a name or file as of `distattn plan --machine`, or null for options.machine: the array that `distattn plan --json`
 * prints. Plans and proves without a communicator and without tensors. Give the text back with distattn_text_free().
 */
DISTATTN_API distattn_status distattn_plan_json(const distattn_problem* problem, const distattn_options* options,
                                                int32_t ranks, const char* machine, char** json);

/* ---- communicators ---- */

/** One rank's end of what connects the ranks. */
typedef struct distattn_comm distattn_comm;

/** How the ranks of a run find each other. */
typedef struct distattn_launch {
  size_t struct_size;
  const char* bootstrap; /**< as `distattn info` lists them, or "file:PATH"; null: as the environment says */
  const char* transport; /**< null: the best usable that connects these ranks */
  int32_t ranks;         /**< 0: as many as the launcher started; 1 without one */
  double timeout_s;      /**< longest time without progress of an awaited rank: above 0, also INFINITY */
} distattn_launch;

#define DISTATTN_LAUNCH_INIT \
  { sizeof(distattn_launch), NULL, NULL, 0, 60.0 }

/**
 * The communicator of all processes that a launcher (mpirun, srun, torchrun) started, or that meet at a file: a
 * collective, as is giving it back. A process without a launcher is alone. launch may be null.
 */
DISTATTN_API distattn_status distattn_comm_from_launcher(const distattn_launch* launch, distattn_comm** comm);

/** Memory that goes to, or comes from, one rank. */
typedef struct distattn_transfer {
  int32_t peer;
  void* data;
  size_t bytes;
} distattn_transfer;

/** A caller's own way to exchange messages. */
typedef struct distattn_callbacks {
  size_t struct_size;
  int32_t rank, size;
  void* user; /**< handed to every callback */
  /**
   * Does all transfers as one group and returns when all have ended: 0, or anything else for a failure. From one rank
   * to another transfers match in order. A lane is called for one group at a time, though not always from the same
   * thread; lane 0 and lane 1 perhaps at once, from different threads, and their messages must not meet each other's.
   */
  int (*exchange)(void* user, int32_t lane, const distattn_transfer* sends, size_t send_count,
                  const distattn_transfer* receives, size_t receive_count);
  /** Ends a pending exchange() with a failure, from any thread; null: it will end by itself. */
  void (*abort)(void* user, const char* message);
  int32_t reaches_cuda; /**< whether transfers may lie in CUDA memory */
  int32_t reserved;     /**< 0 */
} distattn_callbacks;

#define DISTATTN_CALLBACKS_INIT \
  { sizeof(distattn_callbacks), 0, 1, NULL, NULL, NULL, 0, 0 }

/** The callbacks are copied; `user` must outlive the communicator. */
DISTATTN_API distattn_status distattn_comm_from_callbacks(const distattn_callbacks* callbacks, distattn_comm** comm);

/**
 * Some of the ranks of `whole` as a communicator of their own: its rank i is rank members[i]. All members call it, with
 * the same list. `whole` must outlive it; what ends one group's exchange ends the whole's.
 */
DISTATTN_API distattn_status distattn_comm_subgroup(distattn_comm* whole, const int32_t* members, size_t count,
                                                    distattn_comm** comm);

/**
 * Ends the communicator on all its ranks, with what it is a group of: calls under way and all later ones are
 * DISTATTN_INTERRUPTED and say `reason`, which may be null. For a rank that others wait for and that will not call, as
 * after DISTATTN_USAGE. Any thread, but not once the communicator is being given back. Over callbacks, what their
 * abort() does not end goes on.
 */
DISTATTN_API distattn_status distattn_comm_abort(distattn_comm* comm, const char* reason);

/** Both -1 for null. */
DISTATTN_API int32_t distattn_comm_rank(const distattn_comm* comm);
DISTATTN_API int32_t distattn_comm_size(const distattn_comm* comm);
DISTATTN_API void distattn_comm_free(distattn_comm* comm);

/**
 * Calls `body` once for each rank, on threads of this process, with a communicator that is valid during the call. A
 * body that does not return DISTATTN_OK ends the others; the first such status, which may be the caller's own, is
 * returned.
 */
DISTATTN_API distattn_status distattn_run_ranks(int32_t ranks, distattn_status (*body)(void* user, distattn_comm* comm),
                                                void* user);

/* ---- attention ---- */

/** One rank's handle for one problem: planned, proved and allocated once, then called as often as one likes. */
typedef struct distattn_attention distattn_attention;

/** A collective over the communicator's ranks, which must outlive the handle. options may be null. */
DISTATTN_API distattn_status distattn_attention_create(const distattn_problem* problem, const distattn_options* options,
                                                       distattn_comm* comm, distattn_attention** attention);
/** Waits for its queued passes, since other ranks count on them: distattn_comm_abort() ends them early. */
DISTATTN_API void distattn_attention_free(distattn_attention* attention);

/** How many tokens of a distattn_side this rank owns; -1, which distattn_message() explains, for no handle or side. */
DISTATTN_API int64_t distattn_attention_tokens(const distattn_attention* attention, int32_t side);
/** Where they stand in the whole sequence, in the order of the rank's tensors: distattn_attention_tokens() of them. */
DISTATTN_API distattn_status distattn_attention_positions(const distattn_attention* attention, int32_t side,
                                                          int64_t* positions);

/**
 * A rank's own part: q, k, v, o and their gradients [batch, tokens, heads, head_dim], lse and lse_low [batch, heads,
 * tokens]; without batch where it is 1, if one likes. lse is float32 or float64, of which float32 is used.
 *
 * lse_low may be null: what a float32 lse cannot hold of its log-sum-exp, of which backward's weights are then off by
 * up to 6e-8 of |lse|, all of a row alike. Give it to both passes where scores are in the hundreds. A problem in fp64
 * has none.
 */
typedef struct distattn_tensors {
  size_t struct_size;
  const distattn_tensor *q, *k, *v;    /**< read */
  const distattn_tensor *o, *lse;      /**< written by forward, read by backward */
  const distattn_tensor* d_o;          /**< read by backward */
  const distattn_tensor *dq, *dk, *dv; /**< written by backward */
  const distattn_tensor* lse_low;      /**< as lse, where it is given */
} distattn_tensors;

#define DISTATTN_TENSORS_INIT \
  { sizeof(distattn_tensors), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL }

/**
 * Collectives over all ranks. The second and later calls allocate nothing. Tensors that are missing or not the rank's
 * own part are DISTATTN_USAGE before the call begins: nothing was sent, and ranks whose call did begin wait for this
 * one to call again, or for its distattn_comm_abort(). Any other failure ends the call on all ranks, and the handle and
 * its communicator for good: later calls fail in the same way, and both are to be given back.
 */
DISTATTN_API distattn_status distattn_forward(distattn_attention* attention, const distattn_tensors* tensors);
DISTATTN_API distattn_status distattn_backward(distattn_attention* attention, const distattn_tensors* tensors);

/* ---- passes that run while the caller goes on ---- */

/** Tells when a pass that was queued has ended, and how. */
typedef struct distattn_event distattn_event;

/**
 * As distattn_forward() and distattn_backward(), but they queue the pass and return. Passes run in the order of their
 * calls, those that wait included, on this handle and on all others of its communicator, its groups, and what it is a
 * group of; every rank calls them in one order. A pass also begins after `after`, the event of a pass on any handle, or
 * null.
 *
 * The memory of the tensors must stay until the pass has ended, inputs as they are; the structs that describe it may go
 * when the call has returned. *event, which is to be given back, says when that is; `event` may be null.
 *
 * With options.cuda_stream, what the caller puts on that stream after the call begins after the pass, so that it needs
 * no event to use the results there. With one rank and tensors in CUDA memory nothing waits on the host then. With
 * several ranks, whose exchanges a thread of the handle drives, the call returns when all of the pass is on the stream:
 * after the passes before it, `after`, and those of its exchanges that block a host. Without a stream of the caller's
 * it returns at once.
 *
 * Tensors that are wrong are DISTATTN_USAGE at once. Any other failure is one of the pass, and ends what a failure of
 * distattn_forward() does: distattn_event_done() and distattn_event_wait() return it, distattn_attention_check(),
 * distattn_attention_wait(), and later calls.
 */
DISTATTN_API distattn_status distattn_forward_async(distattn_attention* attention, const distattn_tensors* tensors,
                                                    const distattn_event* after, distattn_event** event);
DISTATTN_API distattn_status distattn_backward_async(distattn_attention* attention, const distattn_tensors* tensors,
                                                     const distattn_event* after, distattn_event** event);

/** Any thread. *done is 1 once the pass has ended; then the status is its own. */
DISTATTN_API distattn_status distattn_event_done(const distattn_event* event, int32_t* done);
/** Any thread. Waits for the pass and returns its status. */
DISTATTN_API distattn_status distattn_event_wait(const distattn_event* event);
/** Does not wait, and does not end the pass. Events may outlive the handle and its communicator. */
DISTATTN_API void distattn_event_free(distattn_event* event);

/** The first failure of the handle's passes that have ended. Does not wait for the others. */
DISTATTN_API distattn_status distattn_attention_check(distattn_attention* attention);
/** Waits for all of the handle's passes and returns their first failure. */
DISTATTN_API distattn_status distattn_attention_wait(distattn_attention* attention);

/**
 * What every rank does in a distattn_pass, as `distattn show --format json` writes it; give it back with
 * distattn_text_free().
 */
DISTATTN_API distattn_status distattn_schedule_json(const distattn_attention* attention, int32_t pass, char** json);

#ifdef __cplusplus
}
#endif

#pragma once
/**
 * @file
 * Exact attention over ranks, from C.
 * Errors: functions that can fail return a distattn_status. If one fails, distattn_message() returns the reason as one
 * line, for the calling thread, and the function sets its result to null. No C++ exception leaves the library.
 * Structs begin with struct_size. Initialise them with their *_INIT value, so that a program that was built against an
 * older header works the same with a newer library.
 * Threads: handles are not thread-safe. Only one thread at a time may use a communicator, its groups and the attentions
 * on them. Any thread may use an event. Free each handle with its *_free(), which accepts null.
 */

#include <stddef.h>
#include <stdint.h>

/** Marks the functions that the library exports. */
#define DISTATTN_API __attribute__((visibility("default")))

#ifdef __cplusplus
extern "C" {
#endif

/** Returns the version of the loaded library, e.g. "0.1.0". */
DISTATTN_API const char* distattn_version(void);

typedef enum distattn_status {
  DISTATTN_OK = 0,
  DISTATTN_USAGE = 2,         /**< bad input, or an unsupported combination */
  DISTATTN_ENVIRONMENT = 3,   /**< a backend is not built or not usable here, or memory is missing */
  DISTATTN_TIMEOUT = 4,       /**< an awaited rank made no progress */
  DISTATTN_PEER = 5,          /**< another rank failed or disagreed */
  DISTATTN_INTERRUPTED = 130, /**< the run was ended from outside */
} distattn_status;

/** Returns the message of this thread's last failed call; "" if none has failed. Valid until the next failure in this
 * thread, or until the thread ends. */
DISTATTN_API const char* distattn_message(void);

/** Frees text that the library allocated. */
DISTATTN_API void distattn_text_free(char* text);

/** Says which backends are built and usable on this machine, as the fields of `distattn info --json` that do not
 * concern the command alone. Loads the libraries of all backends. Free the text with distattn_text_free(). */
DISTATTN_API distattn_status distattn_info_json(char** json);

/* ---- tensors ---- */

#if defined(DLPACK_VERSION) || defined(DLPACK_MAJOR_VERSION)
typedef DLTensor distattn_tensor;
#else
/**
 * The same members as DLPack's DLTensor. If dlpack.h is included before this header, it is DLTensor itself. Tensors may
 * lie in host memory (device_type 1) or CUDA memory (2, 3, 13) and hold float64, float32, float16 or bfloat16 (code 2
 * and 4). strides count elements; null means that the tensor is dense, with the last dimension contiguous.
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
/** How exchanges and computation share time; DISTATTN_OWN_MODE: the schedule's own mode. */
typedef enum distattn_mode { DISTATTN_OWN_MODE, DISTATTN_OVERLAPPED, DISTATTN_SERIAL, DISTATTN_GATHERED } distattn_mode;
typedef enum distattn_side { DISTATTN_QUERIES, DISTATTN_KEYS } distattn_side;

/* ---- the problem ---- */

/** A part of a mask: {q0 <= q < q1, k0 <= k < k1, lo <= q - k <= hi}. The bands of a mask must be disjoint. */
typedef struct distattn_band {
  int64_t q0, q1, k0, k1, lo, hi;
} distattn_band;

/** A node of a tree: `length` tokens behind those of earlier nodes. parent is the index of one of these; -1: a root. */
typedef struct distattn_tree_node {
  int64_t length, parent;
} distattn_tree_node;

/** Writes the bands of the mask in which a token sees its node up to itself and all nodes above, and their number to
 * *bands_count. `bands` may be null: they are only counted. `positions`, if not null, receives for each token the
 * number of tokens that it sees besides itself: its position for rotary embeddings. */
DISTATTN_API distattn_status distattn_tree_mask(const distattn_tree_node* nodes, size_t count, distattn_band* bands,
                                                size_t* bands_count, int64_t* positions);

/** One exact attention. Shapes are those of the whole problem, not of one rank's part. *_INIT: one query, one key. */
typedef struct distattn_problem {
  size_t struct_size;
  int64_t batch, seq_q, seq_kv;
  int32_t heads, kv_heads;
  int32_t head_dim, value_dim; /**< value_dim 0: head_dim */
  int32_t dtype;               /**< a distattn_dtype, for computing and sending; other tensors are converted */
  int32_t wire;                /**< a distattn_dtype, for sending partial results and gradients */
  double scale;                /**< 0: 1/sqrt(head_dim) */
  int32_t causal;
  int64_t window_left, window_right; /**< sliding window; -1: unlimited */
  int64_t sinks;                     /**< first keys that stay visible outside the window */
  const int64_t* cu_seqlens;         /**< packed documents: 0, ..., seq_kv; or null */
  size_t cu_seqlens_count;
  /** The whole mask, or null. With bands, causal is ignored, and window, sinks and documents must be as in *_INIT. */
  const distattn_band* bands;
  size_t bands_count;
  double softcap;      /**< above 0: scores become softcap * tanh(score / softcap), as in Gemma 2; 0: they do not */
  int32_t sink_logits; /**< 1: each row's softmax has one more term, exp(sink_logits[head]), without a value */
  int32_t max_logit;   /**< 1: forward also gives the largest score of each head */
  const double* alibi_slopes; /**< by query head: slope * (k - q) is added to scores; null: nothing is */
  size_t alibi_slopes_count;
  double dropout;              /**< probability that a weight is dropped */
  int32_t shared_kv, reserved; /**< 1: keys begin with values, as in MLA: v, dv null, dk is dK + [dV, 0]; and 0 */
} distattn_problem;

#define DISTATTN_PROBLEM_INIT                                                                                          \
  {                                                                                                                    \
    sizeof(distattn_problem), 1, 1, 1, 1, 1, 64, 0, DISTATTN_FP32, DISTATTN_FP32, 0.0, 1, -1, -1, 0, NULL, 0, NULL, 0, \
        0.0, 0, 0, NULL, 0, 0.0, 0, 0                                                                                  \
  }

typedef struct distattn_options {
  size_t struct_size;
  const char* schedule; /**< "F" or "F/B", as `distattn plan` lists them; null: "auto", chosen by rank 0 for all */
  int32_t mode;         /**< a distattn_mode */
  int32_t node_size;    /**< consecutive ranks per node; 0: the named machine's, if it has nodes; never negative */
  int32_t ahead;        /**< steps that messages between nodes may be posted early; 0: searched by auto */
  int32_t backward;     /**< 1: prepare the backward pass too */
  const char* backend;  /**< name of the device; null: the best usable device */
  int32_t threads;      /**< threads of a rank; 0: its share of the cores that it may use */
  int32_t local_ranks;  /**< ranks that share this machine's cores; 0: as the launcher says, also in a group */
  /**
   * Optional functions that allocate and release the handle's buffers, in the backend's memory space and 64-byte
   * aligned. Only distattn_attention_create() calls allocate, and distattn_attention_free() has released everything
   * when it returns. Set both or neither; null: the library allocates.
   */
  void* (*allocate)(void* user, size_t bytes);
  void (*release)(void* user, void* memory);
  void* user; /**< passed to both functions */
  /**
   * Index of this rank among local_ranks, which selects its GPU. -1: the launcher's, or, if the ranks are threads or
   * callbacks, the rank itself; in a group, the index of the rank in the whole communicator. Calls on the handle make
   * that GPU current in the calling thread and leave it so.
   */
  int32_t local_rank;
  /**
   * A cudaStream_t of the caller to compute on: a pass begins after the work on it, and work that the caller puts on it
   * after a call begins after that call's pass. distattn_forward() also waits on the host; distattn_forward_async()
   * does not. Null: the library's own stream, which does not wait for the legacy default stream. Pass cudaStreamLegacy
   * to compute on the latter.
   */
  void* cuda_stream;
  int32_t deterministic; /**< 1: gradients have the same bits in every run, even if that is slower */
  int32_t reserved;      /**< 0 */
  /**
   * The machine for which auto chooses and which defines the nodes: a name or file, as for `distattn plan --machine`.
   * For auto, only rank 0 reads the file. Null: this machine, and for auto the nodes on which a launcher started the
   * ranks.
   */
  const char* machine;
  int64_t memory_bytes; /**< limit for a rank's buffers, both passes together; 0: the machine's memory */
  /** For "placed": tokens that a rank may own beyond its equal share, as a part of that share; -1: 0.005. */
  double balance_tokens;
  /** Who owns which tokens: a name ("striped:64") or segments as JSON (docs/placement.md); null: the schedule's own. */
  const char* layout;
} distattn_options;

#define DISTATTN_OPTIONS_INIT                                                                                          \
  {                                                                                                                    \
    sizeof(distattn_options), NULL, DISTATTN_OWN_MODE, 0, 0, 0, NULL, 0, 0, NULL, NULL, NULL, -1, NULL, 0, 0, NULL, 0, \
        -1.0, NULL                                                                                                     \
  }

/** Predicts the cost of the forward pass (with options.backward, of both passes) on `ranks` ranks of a machine: a name
 * or file, as for `distattn plan --machine`; null: options.machine. Returns the array that `distattn plan --json`
 * prints, without what repeats the request, auto's choices and what binds; "memory_bytes" are those of one pass, and a
 * handle has the buffers of both. Plans and proves, without communicator or tensors. distattn_text_free() the text. */
DISTATTN_API distattn_status distattn_plan_json(const distattn_problem* problem, const distattn_options* options,
                                                int32_t ranks, const char* machine, char** json);

/** Returns the layout that "placed" makes for `ranks` ranks of a machine, as options.layout takes it; the machine is
 * chosen as in distattn_plan_json(). Free the text with distattn_text_free(). */
DISTATTN_API distattn_status distattn_plan_layout(const distattn_problem* problem, const distattn_options* options,
                                                  int32_t ranks, const char* machine, char** layout);

/** Writes the positions, in the whole sequence, of the tokens that `rank` would own with the options' schedule, and
 * their number to *count. No communicator is needed; distattn_attention_positions() returns the same for a handle.
 * `positions` may be null: the tokens are then only counted. */
DISTATTN_API distattn_status distattn_planned_positions(const distattn_problem* problem,
                                                        const distattn_options* options, int32_t ranks, int32_t rank,
                                                        int32_t side, int64_t* positions, int64_t* count);

/* ---- communicators ---- */

/** One rank's end of the connection between ranks. */
typedef struct distattn_comm distattn_comm;

/** Options for how the ranks of a run find each other. */
typedef struct distattn_launch {
  size_t struct_size;
  const char* bootstrap; /**< a name that `distattn info` lists, or "file:PATH"; null: as the environment says */
  const char* transport; /**< a name that `distattn info` lists; null: the best that connects these ranks */
  int32_t ranks;         /**< number of ranks; 0: as many as the launcher started, 1 without a launcher */
  double timeout_s;      /**< longest time without progress of an awaited rank, in seconds: above 0, also INFINITY */
} distattn_launch;

#define DISTATTN_LAUNCH_INIT \
  { sizeof(distattn_launch), NULL, NULL, 0, 60.0 }

/**
 * Makes the communicator of all processes that a launcher (mpirun, srun, torchrun) started, or that meet at a file.
 * Without a launcher, the process is the only rank. This call and distattn_comm_free() are collectives. launch may be
 * null.
 */
DISTATTN_API distattn_status distattn_comm_from_launcher(const distattn_launch* launch, distattn_comm** comm);

/** A block of memory that is sent to, or received from, one rank. */
typedef struct distattn_transfer {
  int32_t peer;
  void* data;
  size_t bytes;
} distattn_transfer;

/** Functions of the caller that exchange messages. */
typedef struct distattn_callbacks {
  size_t struct_size;
  int32_t rank, size;
  void* user; /**< passed to every callback */
  /**
   * Does all transfers as one group and returns when all have ended: 0 for success, any other value for a failure.
   * Transfers from one rank to another match in order. A lane exchanges one group at a time, but not always from the
   * same thread. Lanes 0 and 1 may be called concurrently, from different threads; a message of one lane must never be
   * received by the other. Nothing marks which call a transfer is of: ranks that make different calls may mix them up.
   */
  int (*exchange)(void* user, int32_t lane, const distattn_transfer* sends, size_t send_count,
                  const distattn_transfer* receives, size_t receive_count);
  /** Makes a pending exchange() fail; called from any thread. Null: exchange() ends without it. */
  void (*abort)(void* user, const char* message);
  int32_t reaches_cuda; /**< 1: transfers may lie in CUDA memory */
  int32_t reserved;     /**< 0 */
} distattn_callbacks;

#define DISTATTN_CALLBACKS_INIT \
  { sizeof(distattn_callbacks), 0, 1, NULL, NULL, NULL, 0, 0 }

/** Makes a communicator over callbacks, which are copied. `user` must outlive the communicator. */
DISTATTN_API distattn_status distattn_comm_from_callbacks(const distattn_callbacks* callbacks, distattn_comm** comm);

/**
 * Makes a communicator of some ranks of `whole`: its rank i is rank members[i] of `whole`. All members must call this,
 * with the same list. `whole` must outlive the group. A failure of one group's exchange also ends `whole`.
 */
DISTATTN_API distattn_status distattn_comm_subgroup(distattn_comm* whole, const int32_t* members, size_t count,
                                                    distattn_comm** comm);

/**
 * Ends the communicator on all its ranks, and the communicator of which it is a group. Calls in progress and all later
 * calls return DISTATTN_INTERRUPTED, with `reason` in their message; it may be null. Use it on a rank that will not
 * make a call for which other ranks wait, e.g. after DISTATTN_USAGE. Any thread may call it, but not during or after
 * distattn_comm_free(). With callbacks, an exchange continues if their abort() does not end it.
 */
DISTATTN_API distattn_status distattn_comm_abort(distattn_comm* comm, const char* reason);

/**
 * Gathers what every rank has in host memory: rank r gives bytes[r] bytes, and `all` receives those of all ranks in the
 * order of ranks. `bytes` has an entry for each rank, and all ranks pass the same entries. A collective, which waits
 * for queued passes first, and fails like distattn_forward().
 */
DISTATTN_API distattn_status distattn_comm_all_gather(distattn_comm* comm, const void* mine, const size_t* bytes,
                                                      void* all);

/** The rank's number and the number of ranks; both return -1 for null. */
DISTATTN_API int32_t distattn_comm_rank(const distattn_comm* comm);
DISTATTN_API int32_t distattn_comm_size(const distattn_comm* comm);
DISTATTN_API void distattn_comm_free(distattn_comm* comm);

/** Calls `body` once for each rank, on threads of this process, with a communicator that is valid during the call. If a
 * body returns anything but DISTATTN_OK, the others are ended, and the first such status, which may be one of its own,
 * is returned. Ranks that wait for one whose body has returned DISTATTN_OK get DISTATTN_PEER. */
DISTATTN_API distattn_status distattn_run_ranks(int32_t ranks, distattn_status (*body)(void* user, distattn_comm* comm),
                                                void* user);

/* ---- attention ---- */

/** One rank's handle for one problem: planned, proved and allocated once, then called any number of times. */
typedef struct distattn_attention distattn_attention;

/** A collective over all ranks of the communicator, which must outlive the handle and cannot be used after a failure
 * other than DISTATTN_USAGE. options may be null. A forked process makes its own: others return DISTATTN_USAGE. */
DISTATTN_API distattn_status distattn_attention_create(const distattn_problem* problem, const distattn_options* options,
                                                       distattn_comm* comm, distattn_attention** attention);
/** Creates a handle for each of `count` problems, whose layers attend differently, such as full and window attention in
 * turn. All have the same layout, so that tensors stay where they are between layers, and share a device. weights[i]
 * says how many layers have problems[i], or any numbers in the same proportion; null: equally many. If the schedule is
 * open, rank 0 chooses the layout with the least predicted time of all layers together. memory_bytes limits the sum
 * over the handles. A collective, as distattn_attention_create(). Writes `count` handles, or nulls if it fails; free
 * each. */
DISTATTN_API distattn_status distattn_attentions_create(const distattn_problem* const* problems, const double* weights,
                                                        size_t count, const distattn_options* options,
                                                        distattn_comm* comm, distattn_attention** attentions);
/** Waits for queued passes, because other ranks wait for them too; distattn_comm_abort() ends them early. */
DISTATTN_API void distattn_attention_free(distattn_attention* attention);

/** Returns the number of tokens of a distattn_side that this rank owns. Returns -1, and distattn_message() the reason,
 * if the handle is null or the side is invalid. */
DISTATTN_API int64_t distattn_attention_tokens(const distattn_attention* attention, int32_t side);
/** Writes the positions of these tokens in the whole sequence, in the order of the rank's tensors. `positions` needs
 * room for distattn_attention_tokens() numbers. */
DISTATTN_API distattn_status distattn_attention_positions(const distattn_attention* attention, int32_t side,
                                                          int64_t* positions);

/**
 * The tensors of one rank: q, k, v, o and their gradients are [batch, tokens, heads, head_dim], lse and lse_low are
 * [batch, heads, tokens]. The dimension batch may be left out if it is 1. lse is float32 or float64; only a problem in
 * fp64 uses the precision of float64. Results share no memory with each other.
 * lse_low may be null. It holds the part of the log-sum-exp that a float32 lse cannot hold. Without it, backward's
 * weights are off by up to 6e-8 * |lse|, equally for a whole row. Pass it to both passes if scores are in the hundreds.
 * With a 16-bit wire, backward does not read it. A problem in fp64 has no lse_low.
 * sink_logits, dsink_logits ([heads]) and max_logit ([batch, heads]) are null unless the problem asks for them. The
 * last two are the rank's share: add dsink_logits of all ranks, and take their largest max_logit.
 */
typedef struct distattn_tensors {
  size_t struct_size;
  const distattn_tensor *q, *k, *v;      /**< read; v, like dv, is null if the problem has shared_kv */
  const distattn_tensor *o, *lse;        /**< written by forward, read by backward */
  const distattn_tensor* d_o;            /**< read by backward */
  const distattn_tensor *dq, *dk, *dv;   /**< written by backward */
  const distattn_tensor* lse_low;        /**< optional: written by forward, read by backward */
  const distattn_tensor* sink_logits;    /**< read by both passes */
  const distattn_tensor* dsink_logits;   /**< written by backward */
  const distattn_tensor* max_logit;      /**< written by forward */
  uint64_t dropout_seed, dropout_offset; /**< the same in both passes and on all ranks; offset: below 2^32 */
} distattn_tensors;

#define DISTATTN_TENSORS_INIT \
  { sizeof(distattn_tensors), NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0 }

/**
 * Collectives over all ranks. Only the first call allocates memory. If tensors are missing or are not the rank's part,
 * the call returns DISTATTN_USAGE before it begins. It has sent nothing, and ranks whose call did begin wait until this
 * rank calls again, or calls distattn_comm_abort(). Any other failure ends the call on all ranks. The handle and its
 * communicator cannot be used afterwards: later calls fail in the same way, and the caller must free both.
 */
DISTATTN_API distattn_status distattn_forward(distattn_attention* attention, const distattn_tensors* tensors);
DISTATTN_API distattn_status distattn_backward(distattn_attention* attention, const distattn_tensors* tensors);

/* ---- passes that run while the caller goes on ---- */

/** The completion of a queued pass: whether the pass has ended, and its status. */
typedef struct distattn_event distattn_event;

/**
 * Like distattn_forward() and distattn_backward(), but queue the pass and return. Passes run in the order of their
 * calls, including calls that wait, over all handles of the communicator, of its groups and of the communicator of
 * which it is a group. All ranks must call them in the same order. A pass also begins after the pass of `after`, an
 * event of any handle, or null.
 * Until the pass has ended, the caller must keep the memory of the tensors and must not change inputs. It may free the
 * structs that describe them. *event, which the caller must free, tells when the pass has ended; event may be null.
 * With options.cuda_stream, work that the caller puts on that stream after the call begins after the pass, so that the
 * caller needs no event to use the results there. With one rank and tensors in CUDA memory, no thread waits on the
 * host. With several ranks, a thread of the handle drives the exchanges, and the call returns when all work of the pass
 * is on the stream: it waits for earlier passes, for `after`, and for those exchanges that block a host. Without
 * options.cuda_stream, the call returns immediately.
 * Wrong tensors return DISTATTN_USAGE immediately. Any other failure belongs to the pass and has the same effects as a
 * failure of distattn_forward(). distattn_event_done(), distattn_event_wait(), distattn_attention_check(),
 * distattn_attention_wait() and later calls return it.
 */
DISTATTN_API distattn_status distattn_forward_async(distattn_attention* attention, const distattn_tensors* tensors,
                                                    const distattn_event* after, distattn_event** event);
DISTATTN_API distattn_status distattn_backward_async(distattn_attention* attention, const distattn_tensors* tensors,
                                                     const distattn_event* after, distattn_event** event);

/** Sets *done to 1 if the pass has ended, and then returns its status; otherwise to 0. Any thread. */
DISTATTN_API distattn_status distattn_event_done(const distattn_event* event, int32_t* done);
/** Waits until the pass has ended and returns its status. Any thread. */
DISTATTN_API distattn_status distattn_event_wait(const distattn_event* event);
/** Does not wait for the pass and does not end it. Events may outlive the handle and its communicator. */
DISTATTN_API void distattn_event_free(distattn_event* event);

/** Returns the first failure of the handle's passes that have ended. Does not wait for the others. */
DISTATTN_API distattn_status distattn_attention_check(distattn_attention* attention);
/** Waits for all of the handle's passes and returns their first failure. */
DISTATTN_API distattn_status distattn_attention_wait(distattn_attention* attention);

/** Returns the programs of all ranks for a distattn_pass, as `distattn show --format json` writes them. Free the text
 * with distattn_text_free(). */
DISTATTN_API distattn_status distattn_schedule_json(const distattn_attention* attention, int32_t pass, char** json);

#ifdef __cplusplus
}
#endif

#include "distattn/serving.h" /* many requests at once */

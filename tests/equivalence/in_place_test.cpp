/// A host device uses a caller's tensors where they lie, or packs them: the results are the same, bit for bit.

#include <atomic>
#include <cmath>
#include <cstring>
#include <random>

#include "backends/host/device.hpp"
#include "catch.hpp"
#include "distattn/attention.hpp"
#include "distattn/inproc.hpp"
#include "distattn/registry.hpp"
#include "kernels/element.hpp"
#include "tests/support/sanitized.hpp"

using namespace distattn;

namespace {

enum class Order : std::uint8_t {
  rows,     ///< [batch][sequence][heads][dim]
  columns,  ///< [batch][sequence][dim][heads]: must be packed
};

/// A tensor whose values do not depend on its order in memory.
class Tensor {
 public:
  Tensor(DType dtype, const std::array<std::int64_t, 4>& shape, Order order, std::size_t lead_elements = 0)
      : memory_((static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * shape[3]) + lead_elements) * size_of(dtype)),
        view_(dense_view(memory_.data() + lead_elements * size_of(dtype), dtype, shape[0], shape[1], shape[2],
                         shape[3])) {
    if (order == Order::columns) view_.strides = {view_.strides[0], view_.strides[1], 1, shape[2]};
  }

  const TensorView& view() const { return view_; }
  void fill(double value) {
    for_each([&](auto& element) { element = kernels::rounded_to<std::decay_t<decltype(element)>>(value); });
  }
  void draw(unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal;
    for_each([&](auto& element) { element = kernels::rounded_to<std::decay_t<decltype(element)>>(normal(random)); });
  }
  void append_to(std::vector<double>& values) {
    for_each([&](auto& element) { values.push_back(static_cast<double>(element)); });
  }

 private:
  template <class Visit>
  void for_each(Visit visit) {
    kernels::with_element(view_.dtype, [&]<class Element>(Element) {
      for (std::int64_t b = 0; b < view_.shape[0]; ++b) {
        for (std::int64_t s = 0; s < view_.shape[1]; ++s) {
          for (std::int64_t h = 0; h < view_.shape[2]; ++h) {
            auto* row = reinterpret_cast<Element*>(view_.row(b, s, h));
            for (std::int64_t x = 0; x < view_.shape[3]; ++x) visit(row[x * view_.strides[3]]);
          }
        }
      }
    });
  }

  std::vector<std::byte> memory_;
  TensorView view_;
};

/// A rank's tensors: random inputs, results full of what was there before.
struct Tensors {
  Tensors(const Attention& attention, const Problem& problem, Order order, DType results, unsigned seed)
      : queries(static_cast<std::int64_t>(attention.query_positions().size())),
        keys(static_cast<std::int64_t>(attention.key_positions().size())),
        q(problem.dtype, {problem.batch, queries, problem.heads, problem.head_dim}, order, 3),
        k(problem.dtype, {problem.batch, keys, problem.kv_heads, problem.head_dim}, order),
        v(problem.dtype, {problem.batch, keys, problem.kv_heads, problem.value_dim}, order, 1),
        d_o(problem.dtype, {problem.batch, queries, problem.heads, problem.value_dim}, order),
        o(results, d_o.view().shape, order, 5),
        lse(problem.accumulator(), {problem.batch, queries, problem.heads, 1}, order),
        dq(results, q.view().shape, order),
        dk(results, k.view().shape, order, 1),
        dv(results, v.view().shape, order) {
    for (Tensor* input : {&q, &k, &v, &d_o}) input->draw(++seed);
    for (Tensor* result : {&o, &lse, &dq, &dk, &dv}) result->fill(NAN);
  }
  Bindings bindings() const {
    return {.q = q.view(),
            .k = k.view(),
            .v = v.view(),
            .o = o.view(),
            .lse = lse.view(),
            .d_o = d_o.view(),
            .dq = dq.view(),
            .dk = dk.view(),
            .dv = dv.view()};
  }
  std::vector<double> results() {
    std::vector<double> values;
    for (Tensor* result : {&o, &lse, &dq, &dk, &dv}) result->append_to(values);
    return values;
  }

  std::int64_t queries, keys;
  Tensor q, k, v, d_o, o, lse, dq, dk, dv;
};

bool same_bits(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) == 0;
}

struct How {
  std::string backend;
  std::string schedule;
  int ranks;
  DType results;
};

/// Results of all ranks, of the first and of a second set of tensors.
std::vector<double> attend(const Problem& problem, const How& run, Order order) {
  ScheduleRequest options;
  options.schedule = run.schedule;
  options.passes = Passes::both;
  const auto plan = std::make_shared<const AttentionPlan>(problem, run.ranks, options);
  std::vector<std::vector<double>> of_rank(static_cast<std::size_t>(run.ranks));
  run_ranks(run.ranks, [&](Rank rank, Transport& transport) {
    const auto device = make_device(run.backend, {2, run.ranks});
    Attention attention(plan, *device, transport);
    for (const unsigned set : {1u, 2u}) {
      Tensors tensors(attention, problem, order, run.results, 1000 * set + 10 * static_cast<unsigned>(rank));
      attention.forward(tensors.bindings());
      attention.backward(tensors.bindings());
      const auto values = tensors.results();
      auto& all = of_rank[static_cast<std::size_t>(rank)];
      all.insert(all.end(), values.begin(), values.end());
    }
  });
  std::vector<double> all;
  for (const auto& values : of_rank) all.insert(all.end(), values.begin(), values.end());
  return all;
}

Problem problem_with(DType dtype, Mask mask) {
  Problem problem;
  problem.batch = 2;
  problem.seq_q = problem.seq_kv = 75;
  problem.heads = 4;
  problem.kv_heads = 2;
  problem.head_dim = 16;
  problem.value_dim = 24;
  problem.dtype = dtype;
  problem.mask = std::move(mask);
  return problem;
}

std::vector<std::string> host_backends() {
  std::vector<std::string> names;
  for (const BackendInfo& info : list_backends()) {
    if (info.kind == BackendKind::device && info.usable && info.name != "cuda") names.push_back(info.name);
  }
  return names;
}

std::atomic<std::int64_t> moved{0};  // elements

void counting_rearrange(std::span<const kernels::RearrangeArgs> list, kernels::Team& team,
                        const kernels::StopFlag& stop) {
  for (const auto& args : list) moved += args.shape[0] * args.shape[1] * args.shape[2] * args.shape[3];
  kernels::reference_kernels().rearrange(list, team, stop);
}

/// Elements that a rank alone moves forward and backward.
std::pair<std::int64_t, std::int64_t> moved_by(const Problem& problem, Order order, bool aliased = false) {
  kernels::HostKernels counting = kernels::reference_kernels();
  counting.rearrange = counting_rearrange;
  ScheduleRequest options;
  options.schedule = "ring";
  options.passes = Passes::both;
  std::pair<std::int64_t, std::int64_t> counts;
  run_ranks(1, [&](Rank, Transport& transport) {
    const auto device = backends::make_host_device(counting, {1, 1});
    Attention attention(problem, options, *device, transport);
    Tensors tensors(attention, problem, order, DType::fp32, 1);
    Bindings bindings = tensors.bindings();
    if (aliased) bindings.o = tensors.q.view();
    moved = 0;
    attention.forward(bindings);
    counts.first = moved.exchange(0);
    attention.backward(bindings);
    counts.second = moved;
  });
  return counts;
}

}  // namespace

TEST_CASE("results do not depend on whether tensors are used in place") {
  // The bands leave out queries: what nobody attends is written too.
  const std::vector<Mask> masks{causal_mask(),
                                band_mask({{.q0 = 20, .q1 = 31, .lo = 0}, {.q0 = 60, .q1 = 70, .lo = 0}})};
  const std::vector<std::pair<std::string, int>> schedules{
      {"ring", 1}, {"ring", 2}, {"zigzag-ring", 3}, {"ulysses", 4}, {"mesh:2x2x1:zigzag", 4}, {"balanced", 3}};
  for (const std::string& backend : host_backends()) {
    for (const auto& [schedule, ranks] : cases_to_run(schedules)) {
      for (const Mask& mask : masks) {
        for (const auto& [dtype, results] :
             {std::pair{DType::fp32, DType::fp32}, {DType::bf16, DType::fp32}, {DType::fp16, DType::fp16}}) {
          const Problem problem = problem_with(dtype, mask);
          const How run{backend, schedule, ranks, results};
          CAPTURE(backend, schedule, ranks, mask.given.size(), name_of(dtype), name_of(results));
          const auto packed = attend(problem, run, Order::columns);
          CHECK(std::none_of(packed.begin(), packed.end(), [](double value) { return std::isnan(value); }));
          CHECK(same_bits(attend(problem, run, Order::rows), packed));
        }
      }
    }
  }
}

TEST_CASE("a rank alone moves nothing but statistics") {
  const Problem problem = problem_with(DType::fp32, causal_mask());
  const std::int64_t rows = problem.batch * problem.heads * problem.seq_q;
  CHECK(moved_by(problem, Order::rows) == std::pair{rows, rows});
  const auto [forward, backward] = moved_by(problem, Order::columns);
  CHECK(forward > rows * (problem.head_dim + problem.value_dim));
  CHECK(backward > 2 * rows * (problem.head_dim + problem.value_dim));
}

TEST_CASE("rows that meet many others are packed once, unless they are touched but once") {
  Problem problem = problem_with(DType::fp32, full_mask());
  problem.seq_q = 8;
  problem.seq_kv = 2000;
  const std::int64_t rows = problem.batch * problem.heads * problem.seq_q;
  CHECK(moved_by(problem, Order::rows) ==
        std::pair{rows, rows * (1 + 2 * problem.head_dim + problem.value_dim)});  // q, dO and dq
}

TEST_CASE("a result that overwrites an input is written when the input has been read") {
  Problem problem = problem_with(DType::fp32, causal_mask());
  problem.value_dim = problem.head_dim;
  const std::int64_t rows = problem.batch * problem.heads * problem.seq_q;
  CHECK(moved_by(problem, Order::rows, true).first == rows * (1 + problem.value_dim));
  for (const std::string& backend : host_backends()) {
    CAPTURE(backend);
    ScheduleRequest options;
    options.schedule = "ring";
    options.passes = Passes::both;
    run_ranks(1, [&](Rank, Transport& transport) {
      const auto device = make_device(backend, {1, 1});
      Attention attention(problem, options, *device, transport);
      Tensors apart(attention, problem, Order::rows, DType::fp32, 7),
          shared(attention, problem, Order::rows, DType::fp32, 7);
      attention.forward(apart.bindings());
      attention.backward(apart.bindings());
      attention.forward(shared.bindings());
      Bindings over = shared.bindings();
      over.dq = shared.q.view();
      over.dk = shared.k.view();
      over.dv = shared.v.view();
      attention.backward(over);
      std::vector<double> expected, got;
      for (Tensor* result : {&apart.dq, &apart.dk, &apart.dv}) result->append_to(expected);
      for (Tensor* result : {&shared.q, &shared.k, &shared.v}) result->append_to(got);
      CHECK(same_bits(got, expected));
    });
  }
}

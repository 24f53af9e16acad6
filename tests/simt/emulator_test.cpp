/// The emulator itself: right programs pass under every seed, and each kind of fault is found.

#include <numeric>
#include <string>
#include <vector>

#include "catch.hpp"
#include "kernels/cuda/primitives.cuh"
#include "simt/array.hpp"
#include "simt/faults.hpp"

namespace {

namespace prim = distattn::kernels::cuda::prim;
using distattn::kernels::Bf16;
using simt::Array;

using simt::faulty_seeds;
using simt::mentions;
using simt::message_of;
using simt::seeds;

}  // namespace

TEST_CASE("shuffles move values between the lanes of a mask", "[simt]") {
  std::vector<int> want(32);
  for (int lane = 0; lane < 32; ++lane) want[static_cast<std::size_t>(lane)] = 49600 + (lane < 16 ? 3 : 20);
  const auto kernel = [](int* out) {
    const int lane = static_cast<int>(threadIdx.x);
    int sum = lane;
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(simt::all_lanes, sum, step);
    const int half = lane < 16 ? __shfl_sync(0x0000ffffu, lane, 3) : __shfl_sync(0xffff0000u, lane, 20);
    prim::store_global(out + lane, sum * 100 + half);
  };
  CHECK(faulty_seeds(kernel, 32, want) == 0);
}

namespace {

template <bool synchronised>
void neighbours(std::uint32_t* out) {
  DISTATTN_SHARED_MEMORY(memory);
  const std::uint32_t base = prim::shared_address(memory), lane = threadIdx.x;
  prim::store_shared(base + lane * 4, lane + 100);
  if (synchronised) __syncwarp();
  prim::store_global(out + lane, prim::load_shared<std::uint32_t>(base + (lane + 1) % 32 * 4));
}

template <bool released>
void producer_consumer(std::uint32_t* out) {
  DISTATTN_SHARED_MEMORY(memory);
  const std::uint32_t base = prim::shared_address(memory), lane = threadIdx.x % 32;
  for (std::uint32_t i = 0; i < 4; ++i) {
    if (threadIdx.x < 32) {
      if (released && i > 0) prim::barrier_sync(2, 64);
      prim::store_shared(base + lane * 4, i * 100 + lane);
      prim::barrier_arrive(1, 64);
    } else {
      prim::barrier_sync(1, 64);
      prim::store_global(out + i * 32 + lane, prim::load_shared<std::uint32_t>(base + (lane ^ 5u) * 4));
      if (released && i < 3) prim::barrier_arrive(2, 64);
    }
  }
}

/// Two buffers, as the attention kernels use them: reads one while the next is on its way.
template <int newest, bool barrier>
void double_buffered(const std::uint32_t* in, std::uint32_t* out) {
  DISTATTN_SHARED_MEMORY(memory);
  const std::uint32_t base = prim::shared_address(memory), thread = threadIdx.x, threads = 64, rounds = 5;
  prim::copy_async_4(base + thread * 4, in + thread, true);
  prim::commit_copies();
  for (std::uint32_t i = 0; i < rounds; ++i) {
    prim::wait_for_copies<newest>();
    if (barrier) __syncthreads();
    const std::uint32_t next = base + (i + 1) % 2 * threads * 4;
    const bool more = i + 1 < rounds;
    prim::copy_async_4(next + thread * 4, in + (more ? (i + 1) * threads : 0) + thread, more);
    prim::commit_copies();
    const std::uint32_t other = (thread + 33) % threads;
    prim::store_global(out + i * threads + thread,
                       prim::load_shared<std::uint32_t>(base + i % 2 * threads * 4 + other * 4));
  }
}

template <int newest, bool barrier>
int faulty_double_buffers() {
  Array<std::uint32_t> in(320);
  std::iota(in.data(), in.data() + in.size(), 7u);
  std::vector<std::uint32_t> want;
  for (std::uint32_t i = 0; i < 320; ++i) want.push_back(in[i / 64 * 64 + (i % 64 + 33) % 64]);
  return faulty_seeds([&](std::uint32_t* out) { double_buffered<newest, barrier>(in.data(), out); }, 64, want);
}

}  // namespace

TEST_CASE("shared memory needs order between threads", "[simt]") {
  std::vector<std::uint32_t> ring(32), exchanged(128);
  for (std::uint32_t i = 0; i < 32; ++i) ring[i] = (i + 1) % 32 + 100;
  for (std::uint32_t i = 0; i < 128; ++i) exchanged[i] = i / 32 * 100 + (i % 32 ^ 5u);
  CHECK(faulty_seeds(neighbours<true>, 32, ring) == 0);
  CHECK(faulty_seeds(neighbours<false>, 32, ring) == seeds);
  CHECK(faulty_seeds(producer_consumer<true>, 64, exchanged) == 0);
  CHECK(faulty_seeds(producer_consumer<false>, 64, exchanged) == seeds);
}

TEST_CASE("asynchronous copies land when they like, until they are waited for", "[simt]") {
  CHECK(faulty_double_buffers<0, true>() == 0);
  CHECK(faulty_double_buffers<1, true>() == seeds);
  CHECK(faulty_double_buffers<0, false>() == seeds);
}

TEST_CASE("shared memory starts as NaN", "[simt]") {
  const auto kernel = [](int* out) {
    DISTATTN_SHARED_MEMORY(memory);
    prim::store_global(out, std::isnan(prim::load_shared<float>(prim::shared_address(memory) + 64)) ? 1 : 0);
  };
  CHECK(faulty_seeds(kernel, 1, std::vector<int>{1}) == 0);
}

TEST_CASE("faults of synchronisation are named", "[simt]") {
  const auto stuck = message_of(
      [] {
        if (threadIdx.x < 32) __syncthreads();
      },
      64);
  CHECK(mentions(stuck, "deadlock"));
  CHECK(mentions(stuck, "threads 0-31 at __syncthreads"));
  CHECK(mentions(stuck, "threads 32-63 at exit"));

  const auto incomplete = message_of(
      [] {
        if (threadIdx.x == 0) prim::barrier_arrive(3, 64);
      },
      32);
  CHECK(mentions(incomplete, "incomplete barrier"));

  const auto diverged = message_of(
      [] {
        if (threadIdx.x < 16) {
          __syncwarp();
        } else {
          __shfl_xor_sync(simt::all_lanes, 1, 1);
        }
      },
      32);
  CHECK((mentions(diverged, "divergence") || mentions(diverged, "disagree on the mask")));
}

TEST_CASE("any_thread tells every thread", "[simt]") {
  const auto kernel = [](int* out) {
    const bool first = prim::any_thread(threadIdx.x == 40), second = prim::any_thread(false);
    prim::store_global(out + threadIdx.x, first && !second ? 1 : 0);
  };
  CHECK(faulty_seeds(kernel, 64, std::vector<int>(64, 1)) == 0);
}

TEST_CASE("every address is checked", "[simt]") {
  const auto past_the_end = message_of([] { prim::store_shared(simt::shared_base + 4096, 1.0f); }, 1);
  CHECK(mentions(past_the_end, "outside 4096"));
  const auto between_words = message_of([] { prim::store_shared(simt::shared_base + 2, 1.0f); }, 1);
  CHECK(mentions(between_words, "misaligned"));
  const auto stray_pointer = message_of(
      [] {
        DISTATTN_SHARED_MEMORY(memory);
        reinterpret_cast<volatile char*>(memory)[4100] = 1;
      },
      1);
  CHECK(mentions(stray_pointer, "overrun: byte 4100"));

  Array<float> values(10);
  float* const data = values.data();
  const auto between_pairs =
      message_of([=] { prim::load_global(reinterpret_cast<const std::uint64_t*>(data + 1)); }, 1);
  CHECK(mentions(between_pairs, "misaligned"));
  const auto between_copies = message_of([=] { prim::copy_async_16(simt::shared_base, data + 2, true); }, 1);
  CHECK(mentions(between_copies, "misaligned"));
  const auto next_array = message_of([=] { prim::store_global(data + 10, 1.0f); }, 1);
  CHECK(mentions(next_array, "outside every array"));
  const auto copied = message_of([=] { prim::copy_async_16(simt::shared_base, data + 8, true); }, 1);
  CHECK(mentions(copied, "outside every array"));
  const auto zeros = message_of([=] { prim::copy_async_16(simt::shared_base, data + 8, false); }, 1);
  CHECK(zeros.empty());
}

TEST_CASE("global memory is not shared by threads that nothing orders", "[simt]") {
  Array<float> values(64);
  float* const data = values.data();
  const auto written_twice = message_of([=] { prim::store_global(data, 1.0f); }, 2);
  CHECK(mentions(written_twice, "race"));
  const auto read_and_written = message_of(
      [=] {
        prim::load_global(data + threadIdx.x);
        prim::store_global(data + (threadIdx.x + 1) % 64, 1.0f);
      },
      64);
  CHECK(mentions(read_and_written, "race"));

  data[0] = 0;
  const auto added = message_of(
      [=] {
        prim::load_global(data + 5);
        prim::add_global(data, 1.0f);
      },
      64);
  CHECK(added.empty());
  CHECK(data[0] == 64.0f);
}

TEST_CASE("matrices are loaded and multiplied as the PTX documentation says", "[simt]") {
  // D = A·B of small integers, which bf16 holds exactly: A 16×16 row by row, B 16×8 row by row.
  Array<float> out(128);
  const auto a_of = [](int row, int k) { return static_cast<float>((row * 3 + k * 5) % 7 - 3); };
  const auto b_of = [](int k, int column) { return static_cast<float>((k * 2 + column * 3) % 5 - 2); };
  const auto kernel = [=](float* d_out) {
    DISTATTN_SHARED_MEMORY(memory);
    const std::uint32_t a_base = prim::shared_address(memory), b_base = a_base + 16 * 32;
    const int lane = static_cast<int>(threadIdx.x);
    for (int i = lane; i < 128; i += 32) {
      prim::store_shared(a_base + static_cast<std::uint32_t>(i) * 4,
                         prim::pack<Bf16>(a_of(i / 8, i % 8 * 2), a_of(i / 8, i % 8 * 2 + 1)));
    }
    for (int i = lane; i < 64; i += 32) {
      prim::store_shared(b_base + static_cast<std::uint32_t>(i) * 4,
                         prim::pack<Bf16>(b_of(i / 4, i % 4 * 2), b_of(i / 4, i % 4 * 2 + 1)));
    }
    __syncwarp();
    std::uint32_t a[4], b[4];
    prim::load_matrices(a, a_base + static_cast<std::uint32_t>(lane % 16 * 32 + lane / 16 * 16));
    prim::load_matrices_transposed(b, b_base + static_cast<std::uint32_t>(lane % 16 * 16));
    float d[4] = {};
    prim::mma<Bf16>(d, a, b[0], b[1]);
    for (int i = 0; i < 4; ++i) {
      prim::store_global(d_out + (lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2, d[i]);
    }
  };
  simt::launch(kernel, {1, 32, 1024, 1}, out.data());
  for (int row = 0; row < 16; ++row) {
    for (int column = 0; column < 8; ++column) {
      float want = 0;
      for (int k = 0; k < 16; ++k) want += a_of(row, k) * b_of(k, column);
      CHECK(out[static_cast<std::size_t>(row * 8 + column)] == want);
    }
  }
}

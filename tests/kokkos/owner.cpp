/// A program that uses the library, and owns Kokkos, or does not. Its argument names the case.

#include <sys/wait.h>
#include <unistd.h>

#include <Kokkos_Core.hpp>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "backends/kokkos/spaces/device.hpp"
#include "distattn/engine.hpp"
#include "distattn/registry.hpp"
#include "kernels/portable/runtime.hpp"
#include "kernels/portable/spaces.hpp"
#include "tests/kokkos/host_as_device.hpp"

using namespace distattn;

namespace {

constexpr int skipped = 77;

void expect(bool is_so, const std::string& what) {
  if (is_so) return;
  std::cerr << "not so: " << what << '\n';
  std::exit(1);
}

/// What is thrown is an error of that kind, in one line that says so.
void expect_error(ErrorKind kind, const std::string& words, const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    const std::string text = error.what();
    expect(error.kind() == kind, "the kind of: " + text);
    expect(text.find(words) != std::string::npos, "\"" + words + "\" is in: " + text);
    expect(text.find('\n') == std::string::npos, "one line: " + text);
    std::cout << text << '\n';
    return;
  }
  expect(false, "an error that says " + words);
}

/// One query that sees two equal keys has the mean of their values.
void compute(const kernels::HostKernels& table, int threads = 1) {
  constexpr int dim = 8, queries = 70;
  std::vector<float> q(queries * dim, 1.f), k(2 * dim, 0.5f), v(2 * dim), o(queries * dim), lse(queries);
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i);
  const Band everything;
  const kernels::KeySide side{kernels::packed_rows(k.data(), 1, 2, dim),
                              kernels::packed_rows(v.data(), 1, 2, dim),
                              {0, 2, 1},
                              {&everything, 1}};
  const kernels::AttendArgs args{{DType::fp32, 1, {}, dim, dim, {1}},
                                 kernels::packed_rows(q.data(), 1, queries, dim),
                                 {0, queries, 1},
                                 {&side, 1},
                                 kernels::packed_rows(o.data(), 1, queries, dim),
                                 lse.data()};
  kernels::Team team(threads);
  const kernels::StopFlag never{false};
  table.attend({&args, 1}, team, never);
  for (std::size_t i = 0; i < o.size(); ++i) {
    expect(std::abs(o[i] - (v[i % dim] + v[dim + i % dim]) / 2) < 1e-5f, "a mean of two values");
  }
  for (const float each : lse) expect(std::abs(each - (4 + std::log(2.f))) < 1e-5f, "a log-sum-exp");
}

bool has_serial() { return find_backend(BackendKind::device, "kokkos:serial").value().built; }
bool has_openmp() { return find_backend(BackendKind::device, "kokkos:openmp").value().built; }
bool has_threads() { return find_backend(BackendKind::device, "kokkos:threads").value().built; }

/// A space that any thread may use.
std::string any_space() { return has_serial() ? "kokkos:serial" : "kokkos:openmp"; }

const kernels::HostKernels& table(const std::string& name = any_space()) {
  for (const kernels::HostKernels* each : {DISTATTN_PORTABLE_TABLES}) {
    if (each->name == name) return *each;
  }
  expect(false, name + " is built");
  std::abort();
}

[[noreturn]] void skip(const std::string& why) {
  std::cout << "SKIPPED: " << why << '\n';
  std::exit(skipped);
}

/// The library initialises it, and finalizes it at exit: what Kokkos says of one that is forgotten, fails the test.
void never_initialised() {
  expect(!Kokkos::is_initialized(), "Kokkos is left alone until something is computed");
  const auto device = make_device(any_space(), {});
  expect(!Kokkos::is_initialized(), "a device alone does not need it");
  compute(table());
  expect(Kokkos::is_initialized(), "the library has initialised Kokkos");
  std::atexit([] { std::cout << "the program's own handler ran\n"; });
}

void of_the_program() {
  Kokkos::initialize();
  compute(table());
  compute(table());
  expect(Kokkos::is_initialized(), "the library has not finalized it");
  Kokkos::finalize();
  expect_error(ErrorKind::environment, "Kokkos cannot compute any more", [] { compute(table()); });
  expect_error(ErrorKind::environment, "finalize it after the last call",
               [] { make_device(any_space(), DeviceOptions{}); });
}

void finalized_before() {
#if KOKKOS_VERSION < 30700
  skip("Kokkos before 3.7 does not say that it was finalized, and can be initialised again");
#else
  Kokkos::initialize();
  Kokkos::finalize();
  expect_error(ErrorKind::environment, "Kokkos cannot compute any more", [] { compute(table()); });
  expect_error(ErrorKind::environment, "take backend cpu", [] { make_device(any_space(), DeviceOptions{}); });
#endif
}

/// By the program, of what the library has initialised.
void finalized_between() {
  compute(table());
  const auto device = make_device(any_space(), {});
  if (has_threads()) skip("the threads of this Kokkos can be ended by the thread alone that initialised it");
  Kokkos::finalize();
  expect_error(ErrorKind::environment, "Kokkos cannot compute any more", [] { compute(table()); });
}

void other_space() {
  const auto device = make_device(any_space(), {});
  const auto another = make_device(any_space(), {});
  expect_error(ErrorKind::usage, "kokkos:threads while another computes on " + any_space(),
               [] { kernels::portable::SpaceClaim claim("kokkos:threads"); });
}

/// A device with memory of its own says so instead of ending the program, and is let go, with its memory, afterwards.
void device_finalized_between() {
  Kokkos::initialize();
  {
    const auto device = backends::make_space_device(test::DISTATTN_HOST_AS_DEVICE(), {});
    const auto tensor = device->allocate_tensor(sizeof(int));
    int value = 7, back = 0;
    device->copy(tensor.get(), reinterpret_cast<const std::byte*>(&value), sizeof value);
    device->copy(reinterpret_cast<std::byte*>(&back), tensor.get(), sizeof back);
    expect(back == value, "what was copied there comes back");
    Kokkos::finalize();
    expect_error(ErrorKind::environment, "Kokkos cannot compute any more", [&] { device->allocate_tensor(1); });
    expect_error(ErrorKind::environment, "Kokkos cannot compute any more",
                 [&] { device->copy(reinterpret_cast<std::byte*>(&back), tensor.get(), sizeof back); });
  }
  expect_error(ErrorKind::environment, "finalize it after the last call",
               [] { backends::make_space_device(test::DISTATTN_HOST_AS_DEVICE(), {}); });
}

/// The one pool of Kokkos's Threads is as large as it was made; an instance of its OpenMP has as many as are asked for.
void too_many_threads() {
  const int many = static_cast<int>(std::thread::hardware_concurrency()) + 3;
  const int beyond = kernels::portable::most_openmp_threads + 1;
  if (has_openmp()) {
    kernels::portable::need_kokkos(beyond);
    compute(table(), 2);
    compute(table("kokkos:openmp"), many);
    expect_error(ErrorKind::environment, "threads are asked for where Kokkos has",
                 [&] { compute(table("kokkos:openmp"), beyond); });
  } else if (has_threads()) {
    kernels::portable::need_kokkos(1);
    expect_error(ErrorKind::environment, "threads are asked for where Kokkos has",
                 [&] { compute(table("kokkos:threads"), many); });
  } else {
    skip("this Kokkos has no space of several threads");
  }
}

/// Ranks that are threads of a parallel region of the program compute, with threads of their own.
void in_a_region() {
#ifdef _OPENMP
  compute(table("kokkos:openmp"), 2);
#pragma omp parallel num_threads(3)
  for (int i = 0; i < 20; ++i) {
    for (const kernels::HostKernels* each : {DISTATTN_PORTABLE_TABLES}) compute(*each, 2);
  }
  compute(table("kokkos:openmp"), 2);
#else
  skip("this Kokkos has no OpenMP");
#endif
}

/// A child that was forked from a process which has computed computes where it can, and ends as others do.
void forked() {
  for (const kernels::HostKernels* each : {DISTATTN_PORTABLE_TABLES}) compute(*each, 2);
  const pid_t child = fork();
  expect(child >= 0, "a child could be forked");
  if (child == 0) {
    alarm(60);  // ends it if it waits for threads that are not there
    for (const kernels::HostKernels* each : {DISTATTN_PORTABLE_TABLES}) {
      if (each->name == std::string("kokkos:threads")) {
        expect_error(ErrorKind::environment, "start a process of its own", [&] { compute(*each, 2); });
      } else {
        compute(*each, 2);
      }
    }
    if (has_threads()) _exit(0);  // destructors of Kokkos itself look for its threads
    std::exit(0);
  }
  int status = 0;
  expect(waitpid(child, &status, 0) == child, "the child has ended");
  expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child has computed and ended by itself");
}

/// Ranks that are threads share one Kokkos, which the first of them initialises.
void several_ranks() {
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([] {
      for (int i = 0; i < 50; ++i) {
        for (const kernels::HostKernels* each : {DISTATTN_PORTABLE_TABLES}) compute(*each, 2);
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

/// The program ends while threads that nobody waits for compute.
void exits_while_computing() {
  for (int i = 0; i < 3; ++i) {
    std::thread([] {
      try {
        for (;;) {
          for (const kernels::HostKernels* each : {DISTATTN_PORTABLE_TABLES}) compute(*each, 2);
        }
      } catch (const Error&) {
      }
    }).detach();
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
}

}  // namespace

int main(int count, char** arguments) {
  const std::map<std::string, void (*)()> cases{{"never_initialised", never_initialised},
                                                {"of_the_program", of_the_program},
                                                {"finalized_before", finalized_before},
                                                {"finalized_between", finalized_between},
                                                {"device_finalized_between", device_finalized_between},
                                                {"other_space", other_space},
                                                {"several_ranks", several_ranks},
                                                {"in_a_region", in_a_region},
                                                {"forked", forked},
                                                {"exits_while_computing", exits_while_computing},
                                                {"too_many_threads", too_many_threads}};
  const auto found = count == 2 ? cases.find(arguments[1]) : cases.end();
  expect(found != cases.end(), "a case of that name");
  found->second();
}

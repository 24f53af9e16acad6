#pragma once
/// The rows of `info`.

#include <string>

#include "core/src/fields.hpp"

namespace distattn::cli {

struct CpuRow {
  std::string isa;
  int cores = 1;
  double quota = unknown_number;
};

inline void fields_of(const CpuRow& row, RowFields& field) {
  field({"isa", units::none, "Instruction set of the kernels."}, row.isa);
  field({"cores", units::none,
         "Threads that this process can run at the same time: its affinity, and its quota rounded down."},
        row.cores);
  field({"quota", units::none,
         "Processors' worth of time that its control groups grant, the least up to the root, or null."},
        row.quota);
}

struct StepLibraryRow {
  bool built = false;
  std::optional<std::string> blas, file;
  std::string why;
};

inline void fields_of(const StepLibraryRow& row, RowFields& field) {
  field({"built", units::none, "Whether step is built."}, row.built);
  field({"blas", units::none, "Name of the BLAS that step alone loads, or null."}, row.blas);
  field({"file", units::none, "The file that is found under this name here, or null."}, row.file);
  field({"why", units::none, "Why step is not built, or empty."}, row.why);
}

struct BackendRow {
  std::string name;
  bool built = false, usable = false;
  std::string why;
  std::optional<std::string> version;
};

inline void fields_of(const BackendRow& row, RowFields& field) {
  field({"name", units::none, "Its name."}, row.name);
  field({"built", units::none, "Whether it is built."}, row.built);
  field({"usable", units::none, "Whether it is usable here."}, row.usable);
  field({"why", units::none, "Why it is not usable (never empty then), or what it found."}, row.why);
  field({"version", units::none, "Version of the library that it uses, or null."}, row.version);
}

struct InfoRow {
  std::string version, commit;
  CpuRow cpu;
  std::optional<std::int64_t> memory_bytes;
  std::string calibrated;
  StepLibraryRow step;
  std::vector<BackendRow> backends, transports, bootstraps, providers;
};

inline void fields_of(const InfoRow& row, RowFields& field) {
  field({"version", units::none, "Version of the program."}, row.version);
  field({"commit", units::none, "Commit that it was built from."}, row.commit);
  field({"cpu", units::none, "The processors."}, row.cpu);
  field({"memory_bytes", units::bytes,
         "The least of the machine's memory, its control groups' limits and its own (ulimit -v, -d), or null."},
        row.memory_bytes);
  field({"calibrated", units::none, "How old the figures are that predictions rest on."}, row.calibrated);
  field({"step", units::none, "The command step."}, row.step);
  field({"backends", units::none, "What can compute, best first."}, row.backends);
  field({"transports", units::none, "What can carry messages, best first."}, row.transports);
  field({"bootstraps", units::none, "How ranks can find each other, best first."}, row.bootstraps);
  field({"providers", units::none, "Whose kernels a backend can take instead of its own, best first."}, row.providers);
}

struct BootstrapRow {
  std::string name;
  bool chosen = false;
  std::string why;
};

inline void fields_of(const BootstrapRow& row, RowFields& field) {
  field({"name", units::none, "Its name."}, row.name);
  field({"chosen", units::none, "Whether it is the one that is taken."}, row.chosen);
  field({"why", units::none, "Why it is taken, or what it lacks."}, row.why);
}

/// `info --why-this-launcher`
struct LauncherRow {
  std::optional<std::string> bootstrap;
  std::string why;
  int rank = 0;
  std::optional<int> ranks, local_rank, local_ranks;
  std::vector<std::pair<std::string, std::string>> variables;
  std::vector<BootstrapRow> bootstraps;
};

inline void fields_of(const LauncherRow& row, RowFields& field) {
  field({"bootstrap", units::none, "How ranks would find each other, or null."}, row.bootstrap);
  field({"why", units::none, "Why so, or what is wrong."}, row.why);
  field({"rank", units::none, "Rank of this process."}, row.rank);
  field({"ranks", units::none, "Number of ranks, null if it is known only when the ranks have met."}, row.ranks);
  field({"local_rank", units::none, "Rank among those of this node, null if it is known only then."}, row.local_rank);
  field({"local_ranks", units::none, "Ranks of this node, null if it is known only then."}, row.local_ranks);
  field({"variables", units::none, "Variables of launchers that are set, by name; secrets are given by their length."},
        row.variables);
  field({"bootstraps", units::none, "The bootstraps, in the order in which they are looked for."}, row.bootstraps);
}

}  // namespace distattn::cli

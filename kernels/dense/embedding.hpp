#pragma once
/// The embedding table: one row a token.

#include <cstdint>
#include <span>

#include "kernels/dense/matrix.hpp"

namespace distattn::kernels::dense {

/// x[i] = table[tokens[i]].
template <class T>
void gather_rows(ConstMatrix<T> table, std::span<const std::int32_t> tokens, Matrix<T> x);

/// dtable[tokens[i]] += dx[i], in the order of i.
template <class T>
void scatter_add_rows(ConstMatrix<T> dx, std::span<const std::int32_t> tokens, Matrix<T> dtable);

}  // namespace distattn::kernels::dense

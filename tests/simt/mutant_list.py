"""Faults for mutants.py: what is wrong, in which file, the text (once in the file) and what stands there instead."""

MUTANTS = [
    # Copies and barriers.
    ("forward: no wait for copies", "attend.cuh",
     "wait_for_copies<0>();\n"
     "    __syncthreads();",
     "wait_for_copies<1>();\n"
     "    __syncthreads();"),
    ("forward: no barrier before a tile is read", "attend.cuh", "    __syncthreads();", "    __syncwarp();"),
    ("forward: the next tile is copied before the barrier", "attend.cuh",
     "    prim::wait_for_copies<0>();\n"
     "    __syncthreads();  // the current tile is everybody's, and nobody still reads the stage of the one "
     "before\n"
     "    next.advance(p.visits, Shape::tile.columns);\n"
     "    if (next.valid()) KeyStage<Shape>(stages, tile + 1).copy(p, next, place);\n"
     "    prim::commit_copies();\n",
     "    prim::wait_for_copies<0>();\n"
     "    next.advance(p.visits, Shape::tile.columns);\n"
     "    if (next.valid()) KeyStage<Shape>(stages, tile + 1).copy(p, next, place);\n"
     "    prim::commit_copies();\n"
     "    __syncthreads();\n"),
    ("forward: the first copies are not committed", "attend.cuh",
     "  if (next.valid()) KeyStage<Shape>(stages, 0).copy(p, next, place);\n"
     "  prim::commit_copies();",
     "  if (next.valid()) KeyStage<Shape>(stages, 0).copy(p, next, place);"),
    ("dq: no barrier before a tile is read", "query_gradient.cuh", "    __syncthreads();", "    __syncwarp();"),
    ("dq: no wait for copies", "query_gradient.cuh",
     "wait_for_copies<0>();\n"
     "    __syncthreads();",
     "wait_for_copies<1>();\n"
     "    __syncthreads();"),
    ("dk, dv: no barrier before a tile is read", "key_gradients.cuh", "    __syncthreads();", "    __syncwarp();"),
    ("dk, dv: no wait for copies", "key_gradients.cuh",
     "wait_for_copies<0>();\n"
     "    __syncthreads();",
     "wait_for_copies<1>();\n"
     "    __syncthreads();"),
    ("one stage instead of two", "key_stage.cuh", "tile % 2 * bytes", "tile % 1 * bytes"),
    ("three stages where there is room for two", "key_stage.cuh", "tile % 2 * bytes", "tile % 3 * bytes"),
    ("dk, dv: one stage instead of two", "key_gradients.cuh",
     "tile % 2 * Shape::stage_bytes",
     "tile % 1 * Shape::stage_bytes"),
    ("dk, dv: statistics overlap", "key_gradients.cuh", "delta = lse + Shape::statistic_bytes", "delta = lse"),
    # Tiles in shared memory.
    ("a tile without permutation", "fragments.cuh", "column_chunk ^ (", "column_chunk ^ 0 * ("),
    ("a permutation of four rows", "fragments.cuh", "row & 7", "row & 3"),
    ("a permutation of narrow rows that repeats", "fragments.cuh", "row >> 1 & 3", "row & 3"),
    ("rows past the end are copied", "fragments.cuh", "first + row < count && column < dim", "column < dim"),
    ("one row past the end is copied", "fragments.cuh", "first + row < count", "first + row <= count"),
    ("columns past the head dimension are copied", "fragments.cuh", "&& column < dim", ""),
    ("the last row is not copied", "fragments.cuh", "first + row < count", "first + row + 1 < count"),
    ("a row's stride is its padding", "fragments.cuh",
     "(first + row) * dim + column",
     "(first + row) * width + column"),
    # Fragments.
    ("left operand: upper rows twice", "fragments.cuh",
     "row + lane % 16, column / chunk + lane / 16",
     "row + lane % 8, column / chunk + lane / 16"),
    ("left operand: columns swapped", "fragments.cuh",
     "column / chunk + lane / 16));",
     "column / chunk + 1 - lane / 16));"),
    ("right operand: columns swapped", "fragments.cuh", "k / chunk + lane / 8 % 2", "k / chunk + 1 - lane / 8 % 2"),
    ("right operand: second half of columns", "fragments.cuh", "n + lane / 16 * 8 + lane % 8, k", "n + lane % 8, k"),
    ("transposed right operand: not transposed", "fragments.cuh",
     "  prim::load_matrices_transposed(b,",
     "  prim::load_matrices(b,"),
    ("transposed right operand: rows", "fragments.cuh",
     "k + lane % 16, n / chunk + lane / 16",
     "k + lane % 8, n / chunk + lane / 16"),
    ("weights: registers swapped", "fragments.cuh",
     "a[m][1] = prim::pack<Element>(p[m][k][2], p[m][k][3]);\n"
     "      a[m][2] = prim::pack<Element>(p[m][k + 1][0], p[m][k + 1][1]);",
     "a[m][2] = prim::pack<Element>(p[m][k][2], p[m][k][3]);\n"
     "      a[m][1] = prim::pack<Element>(p[m][k + 1][0], p[m][k + 1][1]);"),
    ("weights: halves of a register swapped", "fragments.cuh", "p[m][k][0], p[m][k][1]", "p[m][k][1], p[m][k][0]"),
    ("products: right operands swapped", "fragments.cuh",
     "a[m], b[0], b[1]);\n"
     "        prim::mma<Element>(d[m][n + 1], a[m], b[2], b[3]);\n"
     "      }\n"
     "    }\n"
     "  }\n"
     "}\n"
     "\n"
     "/// d += P",
     "a[m], b[2], b[3]);\n"
     "        prim::mma<Element>(d[m][n + 1], a[m], b[0], b[1]);\n"
     "      }\n"
     "    }\n"
     "  }\n"
     "}\n"
     "\n"
     "/// d += P"),
    ("a row is combined over two lanes of four", "fragments.cuh",
     "return combine(value, __shfl_xor_sync(whole_warp, value, 2));",
     "return value;"),
    ("a warp does not take part in a shuffle", "fragments.cuh",
     "value = combine(value, __shfl_xor_sync(whole_warp, value, 1));",
     "if (threadIdx.x % 32 < 16) value = combine(value, __shfl_xor_sync(whole_warp, value, 1));"),
    # Rows, masks, results.
    ("rows of a warp overlap", "rows.cuh", "(warp * m_count + m) * 16", "(warp * m_count) * 16"),
    ("halves of a piece swapped", "rows.cuh", "half * 8 + lane / 4", "(1 - half) * 8 + lane / 4"),
    ("one row past the end is written", "rows.cuh", "if (row < count) visit", "if (row <= count) visit"),
    ("the last row is not written", "rows.cuh", "if (row < count) visit", "if (row + 1 < count) visit"),
    ("padding columns are written", "rows.cuh", "    if (8 * n >= dim) break;\n", ""),
    ("a carried gradient is dropped", "rows.cuh", "Pair{before.x + d", "Pair{d"),
    ("masks are not shifted to the lane's columns", "rows.cuh", ">> column_of();", ">> 0;"),
    ("masks of the wrong half", "rows.cuh", "visible[m][i / 2]", "visible[m][1 - i / 2]"),
    ("cut tiles count as whole", "rows.cuh", "if (band_count == 0) continue;", "continue;"),
    ("only the first band cuts", "rows.cuh",
     "visible_columns(bands + visit.first_band, band_count,",
     "visible_columns(bands + visit.first_band, 1,"),
    ("the row's position ignores its stride", "rows.cuh",
     "own.at(row_begin + row_of<m_count>(m, half))",
     "own.start + row_begin + row_of<m_count>(m, half)"),
    ("the first column of a range is hidden", "work.hpp",
     "range.begin > begin ? range.begin - begin : 0",
     "range.begin >= begin ? range.begin - begin + 1 : 0"),
    ("a range ends one column late", "work.hpp",
     "range.end < begin + 64 ? range.end - begin : 64",
     "range.end < begin + 63 ? range.end - begin + 1 : 64"),
    ("a visit ends one tile early", "work.hpp",
     "if (column < end) return;",
     "if (column + columns < end) return;"),
    # Softmax.
    ("sums are not rescaled", "softmax_rows.cuh", "sum[m][half] *= rescale[m][half];", ""),
    ("outputs are rescaled by the other row", "softmax_rows.cuh", "*= rescale[m][i / 2]", "*= rescale[m][1 - i / 2]"),
    ("a row that has seen nothing becomes NaN", "softmax_rows.cuh", "largest == -INFINITY ? 0.0f : largest", "largest"),
    ("the largest score ignores the carry", "softmax_rows.cuh",
     "largest = fmaxf(top[m][half], over_row(largest, [](float a, float b) { return fmaxf(a, b); }) * unit);",
     "largest = over_row(largest, [](float a, float b) { return fmaxf(a, b); }) * unit;"),
    ("the carried sum counts four times", "softmax_rows.cuh",
     "  rows.top[m][half] = from_first_of_row(rows.top[m][half]);\n",
     "  rows.top[m][half] = from_first_of_row(rows.top[m][half]);\n"
     "      rows.sum[m][half] = rows.top[m][half] == -INFINITY ? 0.0f : 1.0f;\n"),
    ("the carry is ignored", "softmax_rows.cuh", "if (!query.carry) return;", "return;"),
    ("an empty row divides by zero", "softmax_rows.cuh", "empty ? 0.0f : 1.0f / sum", "1.0f / sum"),
    ("lse in units of log2", "softmax_rows.cuh",
     "(rows.top[m][half] + prim::lg2(sum)) * ln_2",
     "rows.top[m][half] + prim::lg2(sum)"),
    ("lse without the sum", "softmax_rows.cuh",
     "(rows.top[m][half] + prim::lg2(sum)) * ln_2",
     "rows.top[m][half] * ln_2"),
    ("hidden scores are 0", "attend.cuh", "s[m][n][i] * scale : -INFINITY", "s[m][n][i] * scale : 0.0f"),
    ("outputs are not rescaled", "attend.cuh", "    rows.rescale_outputs(rescale);\n", ""),
    # Heads and blocks.
    ("every query head reads the first key head", "key_stage.cuh", "p.heads.kv_of(place.head)", "0"),
    ("heads and batches exchanged", "block_place.cuh",
     "head = index % heads;\n"
     "    batch = index / heads % p.batch;",
     "head = index / p.batch % heads;\n"
     "    batch = index % p.batch;\n"
     "    batch = 0;"),
    ("a key head has one query head too few", "block_place.cuh",
     "last = first + p.heads.per_kv",
     "last = first + p.heads.per_kv - (p.heads.per_kv > 1)"),
    ("a cut key head reads heads of others", "block_place.cuh",
     "last_head = last < p.heads.q_count ? last : p.heads.q_count;",
     "last_head = last;"),
    ("the offset of a head group is ignored", "block_place.cuh", "- p.heads.q0, last", ", last"),
    # Backward.
    ("dq: delta is not subtracted", "query_gradient.cuh", "(dp[0][n][i] - statistics.delta[i / 2])", "dp[0][n][i]"),
    ("dq: statistics of the other row", "query_gradient.cuh", "statistics.lse[i / 2]", "statistics.lse[1 - i / 2]"),
    ("dq: hidden scores count", "query_gradient.cuh",
     "masks.sees(0, n, i) ? weight * (dp[0][n][i] - statistics.delta[i / 2]) : 0.0f",
     "weight * (dp[0][n][i] - statistics.delta[i / 2])"),
    ("dq: scale forgotten", "query_rows.cuh",
     "p.head_dim, p.scale, query.carry",
     "p.head_dim, 1.0f, query.carry"),
    ("dk, dv: delta of the neighbour", "key_gradients.cuh",
     "i % 2 == 0 ? delta.x : delta.y",
     "i % 2 == 0 ? delta.y : delta.x"),
    ("dk, dv: statistics of the neighbour", "key_gradients.cuh", "lse[i % 2]", "lse[1 - i % 2]"),
    ("dk, dv: statistics past the end", "key_gradients.cuh",
     "const bool valid = column + thread < query.run.count;",
     "const bool valid = true;"),
    ("dk, dv: exchanged operands", "key_gradients.cuh", "(dv, s, stage.d_o)", "(dv, dp, stage.d_o)"),
    ("dv: scaled", "key_gradients.cuh", "p.value_dim, 1.0f, key.carry", "p.value_dim, p.scale, key.carry"),
    ("dk, dv: carry forgotten", "key_gradients.cuh", "p.head_dim, p.scale, key.carry", "p.head_dim, p.scale, false"),
    # fp32.
    ("fp32: a row is used before it is shared", "plain.cuh", "  __syncwarp();\n}\n", "}\n"),
    ("fp32: weights of invisible columns", "plain.cuh", "      if ((visible >> j & 1u) == 0) continue;\n", ""),
    ("fp32: outputs are not rescaled", "plain.cuh", "value *= rescale;", ""),
    ("fp32: sums are not rescaled", "plain.cuh", "sum = sum * rescale + weight;", "sum = sum + weight;"),
    ("fp32: dq without delta", "plain.cuh", "weight * (dp - delta)", "weight * dp"),
    ("fp32: dk carry forgotten", "plain.cuh",
     "dk.store(key.dk + row * p.head_dim, p.head_dim, p.scale, key.carry);",
     "dk.store(key.dk + row * p.head_dim, p.head_dim, p.scale, false);"),
    # Moving and merging.
    ("merge: base of the exponent", "elementwise.cuh", "weights.scale_a * prim", "weights.scale_b * prim"),
    ("merge: an empty side counts", "elementwise.cuh",
     "    if (from_lse == -INFINITY) return;  // an empty side weighs nothing even where it holds no number\n",
     ""),
    ("merge: every lane reads what one writes", "elementwise.cuh",
     "lane == 0 ? prim::load_global(lse_into) : 0.0f",
     "prim::load_global(lse_into)"),
    ("merge: a fresh side multiplies what it holds", "elementwise.cuh", "lse == -INFINITY ? scaled : ", ""),
    ("elements: the last is left out", "elementwise.cuh", "threadIdx.x; i < count;", "threadIdx.x; i + 1 < count;"),
    ("delta: over half a warp", "elementwise.cuh",
     "for (int step = 16; step > 0; step /= 2) sum",
     "for (int step = 8; step > 0; step /= 2) sum"),
    ("output of delta: over half a warp", "elementwise.cuh",
     "for (int step = 16; step > 0; step /= 2) squares",
     "for (int step = 8; step > 0; step /= 2) squares"),
    ("output of delta: squares that overflow", "elementwise.cuh",
     "if (largest == 0) largest = 1;",
     "largest = 1;"),
    ("rearranging: heads and tokens exchanged", "elementwise.cuh",
     "h = row / tokens % heads, t = row % tokens",
     "h = row / tokens % heads, t = row % heads"),
    ("rearranging: every fourth element of neighbours", "elementwise.cuh", "x += 32 * count", "x += 128 * count"),
    ("rearranging: fours that begin between two", "elementwise.cuh",
     "reinterpret_cast<std::uintptr_t>(data) % (static_cast<std::size_t>(count) * bytes) == 0", "true"),
    ("rearranging: fours that lie apart", "elementwise.cuh", "strides[3] == 1", "true"),
    ("rearranging: rows that begin between two fours", "elementwise.cuh",
     "return stride % count == 0;", "return true;"),
    ("rearranging: rows that end between two fours", "elementwise.cuh", "return shape[3] % count == 0 && ", "return "),
]

"""What attention is, in float64 and in as few words as possible."""

import numpy as np


def visible(seq_q, seq_kv, causal=False, window_size=(-1, -1), cu_seqlens=None):
    """[seq_q, seq_kv]: whether a query sees a key. Queries stand at the end."""
    query = np.arange(seq_kv - seq_q, seq_kv)[:, None]
    key = np.arange(seq_kv)[None, :]
    left, right = window_size
    seen = np.ones((seq_q, seq_kv), bool)
    if causal:
        seen &= key <= query
    if left >= 0:
        seen &= key >= query - left
    if right >= 0:
        seen &= key <= query + right
    if cu_seqlens is not None:
        document = np.searchsorted(np.asarray(cu_seqlens), np.arange(seq_kv), side="right")
        seen &= document[query] == document[key]
    return seen


def _by_head(array, heads):
    array = np.moveaxis(np.asarray(array, np.float64), -2, -3)
    return np.repeat(array, heads // array.shape[-3], axis=-3)


def _weights(q, k, scale, seen):
    scores = q @ np.swapaxes(k, -1, -2) * scale
    scores[..., ~seen] = -np.inf
    lse = np.logaddexp.reduce(scores, axis=-1)
    return np.exp(scores - np.where(np.isfinite(lse), lse, 0)[..., None]), lse


def attention(q, k, v, softmax_scale=None, **mask):
    """o [..., seq, heads, dim] and lse [..., heads, seq]."""
    heads, dim = q.shape[-2:]
    seen = visible(q.shape[-3], k.shape[-3], **mask)
    weights, lse = _weights(_by_head(q, heads), _by_head(k, heads), softmax_scale or dim**-0.5, seen)
    return np.moveaxis(weights @ _by_head(v, heads), -3, -2), lse


def gradients(d_o, q, k, v, softmax_scale=None, **mask):
    """dq, dk and dv of sum(d_o * o)."""
    heads, dim = q.shape[-2:]
    kv_heads, scale = k.shape[-2], softmax_scale or dim**-0.5
    seen = visible(q.shape[-3], k.shape[-3], **mask)
    by_head = [_by_head(array, heads) for array in (d_o, q, k, v)]
    weights, _ = _weights(by_head[1], by_head[2], scale, seen)
    d_weights = by_head[0] @ np.swapaxes(by_head[3], -1, -2)
    d_scores = weights * (d_weights - (weights * d_weights).sum(-1, keepdims=True)) * scale

    def summed(gradient):
        shape = (*gradient.shape[:-3], kv_heads, heads // kv_heads, *gradient.shape[-2:])
        return np.moveaxis(gradient.reshape(shape).sum(-3), -3, -2)

    return (np.moveaxis(d_scores @ by_head[2], -3, -2), summed(np.swapaxes(d_scores, -1, -2) @ by_head[1]),
            summed(np.swapaxes(weights, -1, -2) @ by_head[0]))


def error(result, expected):
    """Relative, in the L2 norm."""
    difference = np.asarray(result, np.float64) - expected
    return np.linalg.norm(difference) / np.linalg.norm(expected)

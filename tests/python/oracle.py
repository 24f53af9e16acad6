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


def _scores(q, k, scale, seen, softcap=0.0, alibi_slopes=None):
    scores = q @ np.swapaxes(k, -1, -2) * scale
    if softcap:
        scores = softcap * np.tanh(scores / softcap)
    if alibi_slopes is not None:
        behind = np.arange(seen.shape[1])[None, :] - np.arange(seen.shape[1] - seen.shape[0], seen.shape[1])[:, None]
        scores = scores + np.asarray(alibi_slopes, np.float64)[:, None, None] * behind
    scores[..., ~seen] = -np.inf
    return scores


def _weights(scores, sinks=None):
    lse = np.logaddexp.reduce(scores, axis=-1)
    if sinks is not None:
        lse = np.logaddexp(lse, np.asarray(sinks, np.float64)[:, None])
    return np.exp(scores - np.where(np.isfinite(lse), lse, 0)[..., None]), lse


def attention(q, k, v, softmax_scale=None, softcap=0.0, alibi_slopes=None, sinks=None, **mask):
    """o [..., seq, heads, dim], lse [..., heads, seq] and the largest scores [..., heads]."""
    heads, dim = q.shape[-2:]
    seen = visible(q.shape[-3], k.shape[-3], **mask)
    scores = _scores(_by_head(q, heads), _by_head(k, heads), softmax_scale or dim**-0.5, seen, softcap, alibi_slopes)
    weights, lse = _weights(scores, sinks)
    return np.moveaxis(weights @ _by_head(v, heads), -3, -2), lse, scores.max((-1, -2))


def gradients(d_o, q, k, v, softmax_scale=None, softcap=0.0, alibi_slopes=None, sinks=None, **mask):
    """dq, dk and dv of sum(d_o * o), and with sinks their gradient."""
    heads, dim = q.shape[-2:]
    kv_heads, scale = k.shape[-2], softmax_scale or dim**-0.5
    seen = visible(q.shape[-3], k.shape[-3], **mask)
    by_head = [_by_head(array, heads) for array in (d_o, q, k, v)]
    weights, lse = _weights(_scores(by_head[1], by_head[2], scale, seen, softcap, alibi_slopes), sinks)
    d_weights = by_head[0] @ np.swapaxes(by_head[3], -1, -2)
    delta = (weights * d_weights).sum(-1, keepdims=True)
    d_scores = weights * (d_weights - delta) * scale
    if softcap:
        d_scores *= 1 - np.tanh(by_head[1] @ np.swapaxes(by_head[2], -1, -2) * scale / softcap)**2

    def summed(gradient):
        shape = (*gradient.shape[:-3], kv_heads, heads // kv_heads, *gradient.shape[-2:])
        return np.moveaxis(gradient.reshape(shape).sum(-3), -3, -2)

    found = (np.moveaxis(d_scores @ by_head[2], -3, -2), summed(np.swapaxes(d_scores, -1, -2) @ by_head[1]),
             summed(np.swapaxes(weights, -1, -2) @ by_head[0]))
    if sinks is None:
        return found
    d_sinks = -np.exp(np.asarray(sinks, np.float64)[:, None] - lse) * delta[..., 0]
    return (*found, d_sinks.reshape(-1, *d_sinks.shape[-2:]).sum((0, 2)))


def error(result, expected):
    """Relative, in the L2 norm."""
    difference = np.asarray(result, np.float64) - expected
    return np.linalg.norm(difference) / np.linalg.norm(expected)

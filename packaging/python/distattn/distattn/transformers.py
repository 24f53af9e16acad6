"""Attention of models of transformers whose sequence is sharded over ranks.

    sharding = distattn.torch.Sharding(seq=tokens.shape[1], comm=distattn.torch.init())
    distattn.transformers.register(sharding=sharding)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="distattn")
    loss = model(**distattn.transformers.shard_batch(tokens, sharding), use_cache=False).loss
    loss.backward()  # this rank's part: add up losses and gradients over all ranks
"""

from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface

from ._errors import UsageError
from ._problem import is_score, scores_of, taken_sinks
from .torch import Sharding
from .torch._ops import attend
from .torch._sharding import CURRENT, make_current, sharding_of

NAME = "distattn"
# Keywords of a model's call that change no attention.
_OF_OTHERS = {"cache", "cache_position", "max_length_k", "max_length_q", "num_items_in_batch", "output_hidden_states",
              "output_router_logits", "position_embeddings", "return_dict", "shift_labels", "use_cache"}
# What a config may say of its layers where tokens meet in attention alone.
_LAYERS = {"full_attention", "sliding_attention", "chunked_attention", "attention"}


class _UnmadeMask:
    """Stands for the mask of a model until its attention, which makes none: whatever computes with it is not ours."""

    def _refuse(self, *_: Any, **__: Any) -> Any:
        raise _refuse("the model computes with its mask itself", "its attention is code of its own, not the one that is "
                      "registered", "choose another attn_implementation")

    def __getitem__(self, _: Any) -> "_UnmadeMask":
        return self  # as long as nobody computes with the part

    @classmethod
    def __torch_function__(cls, *_: Any, **__: Any) -> Any:
        return cls()._refuse()

    __getattr__ = __add__ = __radd__ = __mul__ = __rmul__ = __sub__ = __rsub__ = __invert__ = __bool__ = _refuse


_UNMADE_MASK = _UnmadeMask()


def register(sharding: Sharding | None = None, name: str = NAME) -> None:
    """Makes `attn_implementation="distattn"` attend over the ranks of `sharding`: registers the attention and its mask
    under one name. A later call gives the sharding of the next batch; None keeps the one that was given."""
    AttentionInterface.register(name, _attend)
    AttentionMaskInterface.register(name, _mask)
    if sharding is not None:
        make_current(sharding)


def documents_of(position_ids: Tensor) -> tuple[int, ...]:
    """cu_seqlens of the packed documents of a whole sequence, [tokens] or [1, tokens]: each begins at position 0."""
    positions = position_ids.reshape(-1)
    starts = (positions == 0).nonzero().flatten().tolist()
    if position_ids.numel() != position_ids.shape[-1] or starts[:1] != [0]:
        raise UsageError(f"position_ids of {tuple(position_ids.shape)} are not of one packed sequence (documents begin at "
                         f"0): pass [tokens], from 0 on")
    return (*starts, len(positions))


def shard_batch(input_ids: Tensor, sharding: Sharding, labels: Tensor | None = None,
                ignore_index: int = -100) -> dict[str, Any]:
    """This rank's keywords of a causal model's call, of tokens [batch, seq] that all ranks have.

    Labels (None: the tokens) are shifted over the whole sequence, also across ranks, and not across documents. The loss
    is this rank's sum over the number of labels of all ranks: ranks' losses, and their gradients, add up. What counts is
    `shift_labels`: `labels` are none, so that a model that does not know the former refuses them instead of shifting
    this rank's labels once more.
    """
    everyone = sharding.next_tokens(input_ids if labels is None else labels, ignore_index=ignore_index)
    own = sharding.shard(everyone)
    positions = sharding.document_positions.to(input_ids.device).expand(input_ids.shape[0], -1)
    none = torch.full_like(own, -1 if ignore_index != -1 else -2)  # of no class
    return {"input_ids": sharding.shard(input_ids), "position_ids": positions, "labels": none, "shift_labels": own,
            "num_items_in_batch": (everyone != ignore_index).sum()}


def _refuse(what: str, why: str, suggestion: str) -> UsageError:
    return UsageError(f"{what} ({why}): {suggestion}")


def _mask(*_: Any, attention_mask: Tensor | None = None, config: Any = None, local_size: int | None = None,
          use_vmap: bool = False, **__: Any) -> _UnmadeMask:
    """No mask is made, since the library knows it. What it would not know is refused."""
    if attention_mask is not None and torch.compiler.is_compiling():
        raise _refuse("attention_mask is given to a compiled model", "a graph cannot say whether it hides tokens",
                      "pass none")
    if attention_mask is not None and not attention_mask.all():
        raise _refuse("attention_mask hides tokens", "no padding is computed with",
                      "pack documents, with cu_seqlens in the Sharding, and pass no attention_mask")
    if use_vmap:
        raise _refuse("the model has a mask function of its own", "distattn knows causal, windows and documents",
                      "choose another attn_implementation")
    if local_size is not None and local_size != getattr(config, "sliding_window", None):
        raise _refuse(f"chunks of {local_size} tokens", "distattn knows causal, windows and documents",
                      "choose another attn_implementation")
    if not getattr(config, "is_causal", True) or getattr(config, "use_bidirectional_attention", False):
        raise _refuse("a decoder that is not causal", "its layers do not say so", "choose another attn_implementation")
    if not torch.compiler.is_compiling() and sharding_of(0).comm.size > 1:
        _refuse_mixing(config)
    return _UNMADE_MASK


def _refuse_mixing(config: Any) -> None:
    """Convolutions, recurrences and state spaces would start anew in every rank's part of the sequence."""
    layers = {str(layer) for name in ("layer_types", "layers_block_type", "block_types")
              for layer in getattr(config, name, None) or ()}
    layers |= {"mamba"} if any(name.startswith("mamba_") for name in getattr(config, "__dict__", {})) else set()
    if layers - _LAYERS:
        raise _refuse(f"layers of {', '.join(sorted(layers - _LAYERS))} in a sharded sequence",
                      "tokens meet in them too, not in attention alone", "choose a model of attention, or one rank")


def _attend(module: Any, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | _UnmadeMask | None,
            scaling: float | None = None, dropout: float = 0.0, sliding_window: int | None = None,
            is_causal: bool | None = None, position_ids: Tensor | None = None, cu_seq_lens_q: Tensor | None = None,
            cu_seq_lens_k: Tensor | None = None, **others: Any) -> tuple[Tensor, None]:
    """As transformers calls an attention: [batch, heads, tokens, dim] in, [batch, tokens, heads, dim] out."""
    sinks = taken_sinks(others)
    scores = {name: others.pop(name) for name in list(others) if is_score(name)}
    for name, given in others.items():
        if name not in _OF_OTHERS and given is not None and given is not False:
            raise _refuse(f"{name} is given to distattn", "it does not compute with it", "leave it out, or choose "
                          "another attn_implementation")
    if attention_mask is not None and not isinstance(attention_mask, _UnmadeMask):
        raise _refuse("attention_mask is given to distattn", "a mask of numbers is not computed with", "pass none")
    if key.shape[2] != query.shape[2]:
        raise _refuse(f"{query.shape[2]} queries of {key.shape[2]} keys", "a cache of keys is not sharded",
                      "pass use_cache=False, and whole sequences")
    causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
    o, _, _ = attend(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2), sinks, CURRENT, causal,
                     _window(sliding_window, causal, getattr(module, "config", None)),
                     _documents(cu_seq_lens_q, cu_seq_lens_k), 0,
                     scores_of(softmax_scale=scaling, dropout_p=dropout, **scores), None, position_ids)
    return o, None


def _window(width: int | None, causal: bool, config: Any) -> tuple[int, int]:
    """Keys to the left and right. Masks of transformers reach as far to both sides as the config says; attentions that
    take no mask reach one less than they are told, so that some models tell them one more."""
    if width is None:
        return -1, -1
    if causal:
        return width - 1, -1
    if width - 1 != getattr(config, "sliding_window", width - 1):
        raise _refuse(f"a window of {width} keys to both sides", "attentions of transformers differ by one in what it "
                      "means", "choose another attn_implementation")
    return width - 1, width - 1


def _documents(of_queries: Tensor | None, of_keys: Tensor | None) -> Tensor | None:
    """Those of both, which the operator compares."""
    if of_queries is None or of_keys is None or of_queries is of_keys:
        return of_keys if of_queries is None else of_queries
    if of_queries.shape != of_keys.shape:
        raise _refuse("cu_seq_lens_k differs from cu_seq_lens_q", "a sequence sees itself", "pass the same")
    return torch.stack((of_queries, of_keys))

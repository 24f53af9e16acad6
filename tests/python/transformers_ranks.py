"""What every rank does under torchrun: models of transformers, sharded, against the same model on one process."""

import copy
import sys
import unittest

import torch
import torch.distributed as dist
from transformers import (AutoModel, AutoModelForCausalLM, BloomConfig, Gemma2Config, Gemma3TextConfig, GptOssConfig,
                          Lfm2Config, LlamaConfig, MistralConfig, ModernBertConfig, Qwen3Config)

import distattn
import distattn.torch
import distattn.transformers

TOKENS = 97
SIZES = {"vocab_size": 128, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 256}
WINDOWS = {"head_dim": 16, "sliding_window": 16}
CONFIGS = {
    "llama": LlamaConfig(**SIZES),
    "mistral": MistralConfig(**SIZES, sliding_window=16),
    "qwen": Qwen3Config(**SIZES, **WINDOWS, use_sliding_window=True, max_window_layers=1),
    "gemma2": Gemma2Config(**SIZES, **WINDOWS, attn_logit_softcapping=0.5, initializer_range=0.2),
    "gemma3": Gemma3TextConfig(**SIZES, **WINDOWS, layer_types=["sliding_attention", "full_attention"]),
    "gpt-oss": GptOssConfig(**SIZES, **WINDOWS, num_local_experts=4, num_experts_per_tok=2, initializer_range=0.2),
}
DOCUMENTS = [0, 20, 21, 70, TOKENS]

distattn.transformers.register()
dist.init_process_group("gloo")
COMM = distattn.torch.init()


def model_of(config, attention):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(copy.deepcopy(config), attn_implementation=attention)


def tokens_of(config):
    return torch.randint(0, config.vocab_size, (1, TOKENS), generator=torch.Generator().manual_seed(3))


def gradients(model):
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def on_one_process(config, documents):
    """Loss and gradients with transformers' own attention, of one document after the other: not every model of
    transformers tells packed documents apart."""
    model, tokens = model_of(config, "eager"), tokens_of(config)
    parts = [tokens[:, begin:end] for begin, end in zip(documents, documents[1:]) if end - begin > 1]
    labels = sum(part.shape[1] - 1 for part in parts)
    total = torch.zeros(())
    for part in parts:
        loss = model(input_ids=part, labels=part, num_items_in_batch=labels, use_cache=False).loss
        loss.backward()
        total += loss.detach()
    return total, gradients(model)


def over_ranks(config, documents, compiled=False):
    sharding = distattn.torch.Sharding(seq=TOKENS, comm=COMM, cu_seqlens=documents)
    distattn.transformers.register(sharding=sharding)
    model = model_of(config, "distattn")
    run = torch.compile(model, fullgraph=True, backend="aot_eager") if compiled else model
    loss = run(**distattn.transformers.shard_batch(tokens_of(config), sharding), use_cache=False).loss
    loss.backward()
    found = loss.detach().clone(), gradients(model)
    for part in (found[0], *found[1].values()):
        dist.all_reduce(part)
    return found


class Models(unittest.TestCase):
    def judge(self, config, documents, **options):
        loss, expected = on_one_process(config, documents)
        found, sharded = over_ranks(config, documents, **options)
        self.assertLess(abs(found - loss) / loss, 1e-5)
        for name, gradient in expected.items():
            self.assertLess((sharded[name] - gradient).norm(), 1e-5 * gradient.norm(), name)

    def test_one_document(self):
        for name, config in CONFIGS.items():
            with self.subTest(name):
                self.judge(config, [0, TOKENS])

    def test_packed_documents(self):
        for name, config in CONFIGS.items():
            with self.subTest(name):
                self.judge(config, DOCUMENTS)

    @unittest.skipUnless(COMM.size == 1, "it is of one process")
    def test_documents_matter(self):
        self.assertGreater(abs(on_one_process(CONFIGS["llama"], DOCUMENTS)[0] -
                               on_one_process(CONFIGS["llama"], [0, TOKENS])[0]), 1e-3)

    @unittest.skipUnless(COMM.size == 1, "it is of one process")
    def test_caps_and_sinks_matter(self):
        """A cap or a sink that is dropped would show."""
        for name, changed in (("gemma2", {"attn_logit_softcapping": None}), ("gpt-oss", None)):
            config, without = CONFIGS[name], copy.deepcopy(CONFIGS[name])
            model = model_of(config, "eager")
            if changed:
                without.update(changed)
                other = model_of(without, "eager")
            else:
                other = copy.deepcopy(model)
                for layer in other.model.layers:
                    layer.self_attn.sinks.data.fill_(-30)
            tokens = tokens_of(config)
            losses = [each(input_ids=tokens, labels=tokens, use_cache=False).loss.item() for each in (model, other)]
            self.assertGreater(abs(losses[0] - losses[1]), 1e-3 * losses[0], name)

    @unittest.skipUnless(COMM.size < 3, "two suffice")
    def test_a_graph_without_a_break(self):
        for name in ("llama", "gemma2"):
            self.judge(CONFIGS[name], [0, TOKENS], compiled=True)

    def test_dropout(self):
        """Drawn once for all ranks: the same loss on any number of them, another one with another seed."""
        config = copy.deepcopy(CONFIGS["llama"])
        config.attention_dropout = 0.5
        found = []
        for comm, seed in ((COMM, 1), (distattn.Comm.alone(), 1), (COMM, 2)):
            sharding = distattn.torch.Sharding(seq=TOKENS, comm=comm)
            distattn.transformers.register(sharding=sharding)
            model = model_of(config, "distattn").train()
            torch.manual_seed(seed)
            loss = model(**distattn.transformers.shard_batch(tokens_of(config), sharding), use_cache=False).loss.detach()
            if comm is COMM:
                dist.all_reduce(loss)
            found.append(loss.item())
        self.assertLess(abs(found[0] - found[1]), 1e-5 * found[0])
        self.assertGreater(abs(found[0] - found[2]), 1e-4 * found[0])

    def test_documents_of_the_call(self):
        sharding = distattn.torch.Sharding(seq=TOKENS, comm=COMM)
        packed = sharding.with_documents(DOCUMENTS)
        self.assertIs(sharding.with_documents(DOCUMENTS), packed)
        distattn.transformers.register(sharding=sharding)
        model, batch = model_of(CONFIGS["llama"], "distattn"), \
            distattn.transformers.shard_batch(tokens_of(CONFIGS["llama"]), packed)
        lengths = torch.tensor(DOCUMENTS, dtype=torch.int32)
        loss = model(**batch, cu_seq_lens_q=lengths, cu_seq_lens_k=lengths, max_length_q=49, max_length_k=49,
                     use_cache=False).loss.detach()
        dist.all_reduce(loss)
        self.assertLess(abs(loss - on_one_process(CONFIGS["llama"], DOCUMENTS)[0]), 1e-4)


class Refusals(unittest.TestCase):
    def setUp(self):
        self.config = CONFIGS["llama"]
        self.sharding = distattn.torch.Sharding(seq=TOKENS, comm=COMM)
        distattn.transformers.register(sharding=self.sharding)
        self.batch = distattn.transformers.shard_batch(tokens_of(self.config), self.sharding)

    def refuse(self, text, config=None, **given):
        with self.assertRaisesRegex(distattn.UsageError, text):
            model_of(config or self.config, "distattn")(**{**self.batch, **given}, use_cache=False)

    def test_what_is_not_computed(self):
        self.refuse("softcap is -30", softcap=-30.0)
        self.refuse("qv is given", qv=torch.ones(1))
        self.refuse("an_unknown_keyword is given", an_unknown_keyword=1)
        hidden = torch.ones_like(self.batch["input_ids"])
        hidden[0, 0] = 0
        self.refuse("attention_mask hides tokens", attention_mask=hidden)
        lengths, others = torch.tensor(DOCUMENTS), torch.tensor([0, 30, 31, 70, TOKENS])
        self.refuse("rows of cu_seqlens differ", cu_seq_lens_q=lengths, cu_seq_lens_k=others)
        self.refuse("cu_seq_lens_k differs", cu_seq_lens_q=lengths, cu_seq_lens_k=lengths[1:])
        self.refuse("output_attentions is given", output_attentions=True)
        self.refuse("a decoder that is not causal", Gemma2Config(**SIZES, **WINDOWS, use_bidirectional_attention=True))

    def test_a_model_with_attention_code_of_its_own(self):
        """It asks for a mask, and would compute without one."""
        bloom = BloomConfig(vocab_size=64, hidden_size=32, n_layer=1, n_head=4)
        tokens = torch.randint(3, 64, (1, len(self.sharding.positions)))
        with self.assertRaisesRegex(distattn.UsageError, "computes with its mask itself"):
            model_of(bloom, "distattn")(tokens, use_cache=False)

    @unittest.skipIf(COMM.size == 1, "nothing is sharded")
    def test_layers_that_mix_tokens_outside_attention(self):
        mixing = Lfm2Config(vocab_size=128, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
                            num_attention_heads=4, num_key_value_heads=2, layer_types=["conv", "full_attention"])
        self.refuse("layers of conv in a sharded sequence", mixing)

    def test_windows_to_both_sides(self):
        """ModernBERT's attention is told one more than its mask; T5Gemma's is not."""
        tokens = torch.randint(3, 64, (1, TOKENS), generator=torch.Generator().manual_seed(1))
        known = ModernBertConfig(
            vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=4,
            pad_token_id=0, cls_token_id=1, sep_token_id=2, bos_token_id=1, eos_token_id=2, local_attention=8,
            layer_types=["sliding_attention"])
        outputs = []
        for implementation in ("eager", "distattn"):
            torch.manual_seed(1)
            model = AutoModel.from_config(known, attn_implementation=implementation).eval()
            given = {"input_ids": tokens} if implementation == "eager" else \
                {"input_ids": self.sharding.shard(tokens), "position_ids": self.batch["position_ids"]}
            with torch.no_grad():
                outputs.append(model(**given)[0])
        self.assertLess((self.sharding.shard(outputs[0]) - outputs[1]).abs().max(), 1e-4)

    def test_a_window_to_both_sides_whose_width_is_told_in_two_ways(self):
        encoder = Gemma2Config(**SIZES, **WINDOWS)  # as T5Gemma's attention is told it
        with self.assertRaisesRegex(distattn.UsageError, "a window of 16 keys to both sides"):
            distattn.transformers._window(16, False, encoder)

    def test_a_model_that_shifts_labels_itself(self):
        """It takes labels and drops shift_labels, as some models with pictures do."""
        del self.batch["shift_labels"]
        with self.assertRaisesRegex(IndexError, "out of bounds"):
            model_of(self.config, "distattn")(**self.batch, use_cache=False)

    def test_positions_of_other_tokens(self):
        self.refuse("positions are not those", position_ids=self.batch["position_ids"] + 1)
        packed = self.sharding.with_documents(DOCUMENTS).document_positions[None]
        if not torch.equal(packed, self.batch["position_ids"]):
            self.refuse("positions are not those", position_ids=packed)

    def test_documents_of_positions(self):
        positions = torch.cat([torch.arange(end - begin) for begin, end in zip(DOCUMENTS, DOCUMENTS[1:])])
        self.assertEqual(list(distattn.transformers.documents_of(positions[None])), DOCUMENTS)
        with self.assertRaisesRegex(distattn.UsageError, "one packed sequence"):
            distattn.transformers.documents_of(positions[None].expand(2, -1))


if __name__ == "__main__":
    done = unittest.main(exit=False, verbosity=0)
    dist.destroy_process_group()
    sys.exit(0 if done.result.wasSuccessful() else 1)

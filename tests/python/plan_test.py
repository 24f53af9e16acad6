"""Rows of distattn.plan and distattn.info are those of the command. DISTATTN_COMMAND: the command."""

import json
import os
import re
import subprocess
import unittest
import xml.etree.ElementTree

import distattn


def command(*arguments):
    done = subprocess.run([os.environ["DISTATTN_COMMAND"], *arguments, "--json"], capture_output=True, text=True,
                          check=True)
    return json.loads(done.stdout)


class Rows(unittest.TestCase):
    def test_plan(self):
        rows = distattn.plan(seq=4096, heads=8, kv_heads=2, head_dim=64, ranks=4, schedule="auto,ring",
                             machine="dgx-h100x8", backward=True)
        expected = command("plan", "--seq", "4096", "--heads", "8", "--kv-heads", "2", "--head-dim", "64", "--ranks", "4",
                           "--schedule", "auto,ring", "--machine", "dgx-h100x8", "--backward")

        def by_name(listed):
            return {(row["schedule"], row["pass"]): row for row in listed}

        self.assertEqual(len(rows), 4)
        for key, row in by_name(expected).items():
            self.assertEqual(by_name(rows)[key], {name: row[name] for name in by_name(rows)[key]})
            self.assertEqual(set(row) - set(by_name(rows)[key]),
                             {"mask", "bound", "softcap", "sink_logits", "alibi", "max_logit", "dropout", "layers",
                              "all_layers_s", "sent_as", "chosen", "expansion_flops_max", "expansion_s"})

    def test_masks_and_types_are_planned(self):
        sizes = {"seq": 4096, "heads": 8, "head_dim": 64, "ranks": 4, "schedule": "ring", "machine": "dgx-h100x8"}
        times = [distattn.plan(**sizes, **options)[0]["predicted_s"] for options in (
            {}, {"causal": False}, {"window_size": (100, 0)}, {"cu_seqlens": [0, 1000, 4096]}, {"dtype": "bfloat16"})]
        self.assertEqual(len(set(times)), len(times))
        self.assertEqual(len(distattn.plan(**{**sizes, "schedule": ["ring", "balanced"]})), 2)

    def test_keys_with_values_in_them(self):
        sizes = {"seq": 4096, "heads": 8, "kv_heads": 1, "head_dim": 576, "value_dim": 512, "ranks": 4, "schedule": "ring",
                 "machine": "dgx-h100x8"}
        apart, shared = (distattn.plan(**sizes, shared_kv=shared)[0] for shared in (False, True))
        self.assertEqual(shared["bytes_sent_max"] * (576 + 512), apart["bytes_sent_max"] * 576)
        self.assertTrue(shared["shared_kv"] and not apart["shared_kv"])

    def test_what_is_sent_and_how(self):
        sizes = {"seq": 4096, "heads": 8, "head_dim": 64, "ranks": 4, "machine": "dgx-h100x8"}
        rows = [distattn.plan(**sizes, schedule="burst", dtype="bfloat16", wire=wire)[0] for wire in (None, "bfloat16")]
        self.assertEqual([row["wire"] for row in rows], ["fp32", "bf16"])
        self.assertLess(rows[1]["bytes_sent_max"], rows[0]["bytes_sent_max"])
        overlapped, serial = (distattn.plan(**sizes, schedule="ring", mode=mode)[0] for mode in ("overlapped", "serial"))
        self.assertLess(overlapped["predicted_s"], serial["predicted_s"])
        bands, _ = distattn.tree_mask([(1024, -1), (1024, 0), (2048, 0)])
        self.assertLess(distattn.plan(**sizes, schedule="ring", bands=bands)[0]["predicted_s"], overlapped["predicted_s"])

    def test_rows_are_a_table(self):
        """pandas.DataFrame(rows) has a column for each field, and numbers in it."""
        rows = distattn.plan(seq=4096, heads=8, head_dim=64, ranks=4, schedule="ring,placed", machine="dgx-h100x8",
                             cu_seqlens=[0, 1000, 4096], backward=True)
        self.assertEqual(len({tuple(row) for row in rows}), 1)
        for row in rows:
            for value in row.values():
                self.assertIsInstance(value, str | int | float | None)

    def test_picture(self):
        rows = distattn.plan(seq=4096, heads=8, head_dim=64, ranks=4, schedule="ring,zigzag-ring", machine="dgx-h100x8")
        picture = xml.etree.ElementTree.fromstring(rows._repr_svg_())
        names = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
        self.assertEqual([name for name in names if "," in name], ["ring, forward", "zigzag-ring, forward"])
        widths = [float(bar.get("width")) for bar in picture.iter("{http://www.w3.org/2000/svg}rect")]
        self.assertAlmostEqual(widths[0] / widths[1], rows[0]["predicted_s"] / rows[1]["predicted_s"], places=2)

    def test_layout(self):
        sizes = {"seq": 4096, "heads": 8, "head_dim": 64, "ranks": 4, "cu_seqlens": [0, 1000, 4096],
                 "machine": "dgx-h100x8"}
        made = distattn.layout(**sizes)
        self.assertEqual(made["ranks"], 4)
        self.assertEqual(sum(segment["count"] for segment in made["segments"]), 4096)
        balanced = distattn.layout(**sizes, balance_tokens=0.0)
        owned = [sum(segment["count"] for segment in balanced["segments"] if segment["owner"] == rank)
                 for rank in range(4)]
        self.assertEqual(owned, [1024] * 4)

    def test_blocks(self):
        rows = distattn.plan(seq=4096, heads=8, head_dim=64, ranks=4, schedule="ring,auto", machine="dgx-h100x8",
                             layout="striped:64")
        self.assertEqual(rows[0]["schedule"], "mesh:1x4x1:striped:64")
        self.assertTrue(rows[1]["schedule"].endswith(":striped:64"), rows[1]["schedule"])

    def test_info(self):
        # Each process tries anew how fast pairs are multiplied.
        info, expected = (json.loads(re.sub(r"[\d.]+ products of", "some products of", json.dumps(each)))
                          for each in (distattn.info(), command("info")))
        for each in (info, expected):  # in Python, NCCL and cuDNN of wheels come before the system's
            for kind, entries in each.items():
                if isinstance(entries, list):
                    each[kind] = [one for one in entries if not one["name"].startswith(("nccl", "cudnn"))]
        self.assertEqual(info.pop("cpu"), {name: expected["cpu"][name] for name in ("cores", "quota")})
        self.assertEqual(info, {name: expected[name] for name in info})
        self.assertEqual(distattn.__version__, expected["version"])


if __name__ == "__main__":
    unittest.main()

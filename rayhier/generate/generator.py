"""A model with encoder and decoder that writes queries for documents (Nogueira et al., doc2query).

A query depends only on the seed, the document's id and the number of the query, not on the batch.
"""

import copy
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rayhier.model.encoder import LOCAL, load_pretrained
from rayhier.spec import InputError
from rayhier.spec.train import QueryModel
from rayhier.spec.train.generated import MOST_READ, MOST_WRITTEN
from rayhier.storage.pair_source import MODEL

UNUSED = ("top_k", "top_p", "temperature", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff", "penalty_alpha")
"""Settings of generation in a model's folder that are ignored: the settings here replace them."""
LIKELIEST, TOGETHER = 10, 32
"""Likeliest tokens from which each next token is drawn, and documents that the model reads in one forward pass."""
SEED = 0
"""Seed of the draws of queries' tokens, and of the documents to write queries for."""


class Drawing:
    """A logits processor that draws the next token: argmax(score + Gumbel noise) is distributed as softmax(score).

    The noise is drawn beforehand, so that a query does not depend on the other queries of its batch.
    """

    def __init__(self, noise_RTK: Tensor) -> None:
        """Take the noise [r, t, k] of r queries, for t new tokens and k likeliest candidates."""
        self.noise_RTK, self.step = noise_RTK, 0

    def __call__(self, ids_RT: Tensor, score_RV: Tensor) -> Tensor:  # noqa: ARG002  as transformers calls it
        """Return scores [r, v] of the next token: noise is added to the k likeliest, others are -inf."""
        best = score_RV.topk(min(self.noise_RTK.shape[2], score_RV.shape[1]), dim=1)
        noise_RK = self.noise_RTK[:, self.step, : best.values.shape[1]]
        self.step += 1
        drawn_RV: Tensor = torch.full_like(score_RV, -torch.inf).scatter_(1, best.indices, best.values + noise_RK)
        return drawn_RV


class Generator:
    def __init__(self, folder: Path, spec: QueryModel, device: torch.device) -> None:
        from transformers import AutoTokenizer

        self.spec, self.device = spec, device
        self.model = load(folder).to(device)
        self.tokenizer = AutoTokenizer.from_pretrained(folder, **LOCAL)
        self.config = copy.deepcopy(self.model.generation_config)
        positions = getattr(
            self.model.config, "max_position_embeddings", None
        )  # missing in T5: its positions are relative
        self.max_length = min(MOST_READ, positions or MOST_READ)
        self.new_tokens = min(MOST_WRITTEN, (positions or 1 + MOST_WRITTEN) - 1)  # less the start token
        settings = {"do_sample": False, "num_beams": 1, "max_new_tokens": self.new_tokens, "max_length": None}
        for name, value in (dict.fromkeys(UNUSED) | settings).items():
            setattr(self.config, name, value)

    def __call__(self, ids: Sequence[str], texts: Sequence[str]) -> list[list[str]]:
        tokens = [torch.tensor(ids) for ids in self._tokens(texts)]
        order = sorted(range(len(tokens)), key=lambda row: -len(tokens[row]))
        queries: list[list[str]] = [[] for _ in ids]
        for begin in range(0, len(order), TOGETHER):
            rows = order[begin : begin + TOGETHER]
            written = self._write([ids[row] for row in rows], [tokens[row] for row in rows])
            for place, row in enumerate(rows):
                queries[row] = written[place * self.spec.per_document : (place + 1) * self.spec.per_document]
        return queries

    def _tokens(self, texts: Sequence[str]) -> list[list[int]]:
        if not texts:
            return []
        prompted = [self.spec.prompt + text for text in texts]
        read: list[list[int]] = self.tokenizer(prompted, truncation=True, max_length=self.max_length)["input_ids"]
        return read

    @torch.inference_mode()
    def _write(self, ids: Sequence[str], tokens: Sequence[Tensor]) -> list[str]:
        from transformers import LogitsProcessorList

        padded_NT = pad_sequence(list(tokens), batch_first=True, padding_value=self.tokenizer.pad_token_id or 0)
        mask_NT = pad_sequence([torch.ones_like(ids) for ids in tokens], batch_first=True).to(self.device)
        read = self.model.get_encoder()(input_ids=padded_NT.to(self.device), attention_mask=mask_NT)
        times = self.spec.per_document
        read.last_hidden_state = read.last_hidden_state.repeat_interleave(times, dim=0)
        chosen_RT = self.model.generate(
            encoder_outputs=read,
            attention_mask=mask_NT.repeat_interleave(times, dim=0),
            generation_config=self.config,
            logits_processor=LogitsProcessorList([Drawing(self._noise(ids))]),
        )
        return [" ".join(text.split()) for text in self.tokenizer.batch_decode(chosen_RT, skip_special_tokens=True)]

    def _noise(self, ids: Sequence[str]) -> Tensor:
        shape = (self.new_tokens, LIKELIEST)
        rows = [noise(SEED, name, number, shape) for name in ids for number in range(self.spec.per_document)]
        return torch.from_numpy(np.stack(rows)).to(self.device)


def noise(seed: int, name: str, number: int, shape: tuple[int, int]) -> np.ndarray[Any, np.dtype[np.float32]]:
    key = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
    return np.random.default_rng([seed, number, key]).gumbel(size=shape).astype(np.float32)


def load(folder: Path) -> Any:
    """Load a model in float32. InputError where its kind does not write text, or weights are missing."""
    from transformers import AutoModelForSeq2SeqLM

    try:
        model, missing, mismatched = load_pretrained(AutoModelForSeq2SeqLM, folder, torch.float32)
    except ValueError as error:
        message = str(error).splitlines()[0][:200]
        raise InputError(
            f"{MODEL}: {folder} cannot be loaded ({message}); allowed: models such as T5 or BART"
        ) from None
    wrong = sorted([*missing, *mismatched])
    if wrong:
        raise InputError(
            f"{MODEL}: {folder} lacks {len(wrong)} tensors of its config, or has them in another shape; "
            f"the first: {wrong[0]}"
        )
    return model

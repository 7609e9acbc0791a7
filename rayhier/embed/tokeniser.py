"""Turn texts into token ids, as an encoder reads them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from rayhier.embed.batches import Tokens
from rayhier.spec.encoder import EncoderSpec
from rayhier.storage.model_layout import LETTERS, Layout, Role


class Tokeniser:
    def __init__(self, tokenizer: Any, layout: Layout, spec: EncoderSpec, longest: int) -> None:
        self.tokenizer, self.prefixes, self.max_length = tokenizer, layout.prefixes(spec), min(spec.max_length, longest)

    def __call__(self, texts: Sequence[str], role: Role = "document") -> Tokens:
        backend = self.tokenizer.backend_tokenizer  # without offsets and masks, a quarter faster than transformers
        backend.enable_truncation(self.max_length)
        backend.no_padding()
        prefixed = [self.prefixes[role] + text[: LETTERS * self.max_length] for text in texts]
        return [np.array(encoding.ids, np.int32) for encoding in backend.encode_batch_fast(prefixed)]

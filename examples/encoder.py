"""Use the trained encoder without rayhier: `python examples/encoder.py runs/quickstart "how do I open a zip file"`.

It needs `pip install sentence-transformers`. `WORKDIR/encoder` is a folder in that library's format.
"""

import sys

from sentence_transformers import SentenceTransformer

if len(sys.argv) != 3:
    sys.exit(__doc__)
workdir, query = sys.argv[1:]
encoder = SentenceTransformer(f"{workdir}/encoder")
texts = ["zipfile.ZipFile opens an archive.", "math.sqrt returns the square root of a number."]
similarities = encoder.similarity(encoder.encode([query]), encoder.encode(texts))[0]
for text, similarity in zip(texts, similarities.tolist(), strict=True):
    print(f"{similarity:.3f}  {text}")

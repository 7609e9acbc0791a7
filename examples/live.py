"""Write to a server and find the new document: `python examples/live.py http://127.0.0.1:8000 TOKEN_FILE`.

Start the server with `rayhier serve runs/quickstart --write-token-file TOKEN_FILE`.
"""

import sys
from pathlib import Path

import rayhier

if len(sys.argv) != 3:
    sys.exit(__doc__)
url, token_file = sys.argv[1:]
document = {"id": "howto.yak", "title": "How do I shave a yak?", "text": "Use sharp shears and a calm yak."}
with rayhier.Client(url, Path(token_file).read_text().strip()) as client:
    change = client.put([document])
    print(f"change {change.log} of version {change.version}")
    print(client.search("shave a yak", k=1).results[0].title)
    client.delete([document["id"]])

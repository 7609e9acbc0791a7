"""The mathematics in plain torch: encoder, head, routers, losses. Nothing here knows Ray or storage formats."""

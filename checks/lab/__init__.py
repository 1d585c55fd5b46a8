"""Experiments beside the page of figures: comparisons with papers' methods, trainings to a loss, and where time goes.

`checks.bench` measures what README and docs/results say of this version, and has what both measure with: jobs, records,
turns.  It imports nothing from here.  Each experiment is a command of its own, and writes its records into `results/`.

- `sparse`, with `sparse_worker` and `sparse_page`: sparse allreduces beside gloo and others' on slow links.
- `convergence`, with its tasks, ways, times, results and page: trainings with compressed gradients, to a loss.
- `peers`, `gloo_peers`, `peer_links`, `machines`: other libraries, on one machine and on several.
- `block_bytes`, `topk_bytes`, `counting`: bytes that methods take, counted.
- `where`: in which functions time goes.
"""

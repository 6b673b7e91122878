#!/usr/bin/env bash
# Another fold is another line of the spec: half of x enters the streams. The emitted launch changes where the fold is,
# and nowhere else.
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d)

sed 's/post_mix\[t,s\]\*x\[t,c\]/0.5*(post_mix[t,s]*x[t,c])/' 01_own_layer.yaml > "$work/other.yaml"
monoc compile 01_own_layer.yaml --out "$work/one"
monoc compile "$work/other.yaml" --out "$work/other"
diff <(tail -n +5 "$work/one/mlp.py") <(tail -n +5 "$work/other/mlp.py") || true    # the header has hashes
monoc verify "$work/other.yaml" --out "$work/other" --tokens 3 --tp 2

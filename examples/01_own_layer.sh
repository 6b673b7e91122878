#!/usr/bin/env bash
# A layer of one's own, from its spec to launches that were run: 01_own_layer.yaml is all there is to write.
set -euo pipefail
cd "$(dirname "$0")"
out=$(mktemp -d)/streams_mlp

monoc check 01_own_layer.yaml
monoc compile 01_own_layer.yaml --out "$out"
monoc build 01_own_layer.yaml --out "$out" --tokens 5      # to gfx950 assembly: registers, LDS, spills
monoc explain 01_own_layer.yaml gate_up                    # what is it, where does it live, who reads it?
monoc verify 01_own_layer.yaml --out "$out" --tokens 5     # run by its own runner, held against the spec in torch

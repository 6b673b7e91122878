#!/usr/bin/env bash
# Would it be noticed? A fault planted in an emitted launch (the norm adds up the columns of 16 lanes, not of all) is found by the
# verification, and blamed on the value it spoils first. Exit code 1: found something.
set -euo pipefail
cd "$(dirname "$0")"
out=$(mktemp -d)/streams_mlp

monoc compile 01_own_layer.yaml --out "$out"
sed -i 's/lanes_apart(64)/lanes_apart(16)/' "$out/mlp.py"
if monoc verify 01_own_layer.yaml --out "$out" --tokens 3 --tp 1; then
    echo "the fault was not noticed"
    exit 1
fi

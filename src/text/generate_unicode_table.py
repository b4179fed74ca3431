"""Writes unicode_table.inc: for every code point the classes that the pre-tokenisation pattern asks for.

The classes are read out of the tiktoken package itself (its Rust regex engine is the reference for the pattern):
a tokenizer with 256 byte ranks and the pattern `class+` returns exactly the characters of that class.
    pip install tiktoken && python src/text/generate_unicode_table.py > src/text/unicode_table.inc
"""
import sys

import tiktoken

BYTES = {bytes([value]): value for value in range(256)}
CLASSES = [  # bit, pattern; the names are those of unicode_classes.h
    (1, r"\p{Han}"),
    (2, r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"),
    (4, r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"),
    (8, r"\p{L}"),
    (16, r"\p{N}"),
    (32, r"\s"),
    (64, r"[\r\n]"),
]
ALL = [chr(point) for point in range(0x110000) if not 0xD800 <= point <= 0xDFFF]


def members(pattern):
    found = set()
    encoding = tiktoken.Encoding("classes", pat_str=f"{pattern}+", mergeable_ranks=BYTES, special_tokens={})
    for start in range(0, len(ALL), 4096):
        ids = encoding.encode_ordinary("".join(ALL[start:start + 4096]))
        found.update(bytes(ids).decode("utf-8"))
    return found


def main():
    classes = [0] * 0x110000
    for bit, pattern in CLASSES:
        for character in members(pattern):
            classes[ord(character)] |= bit
    print(f"// Written by generate_unicode_table.py with tiktoken {tiktoken.__version__}: first code point of each range, its classes.")
    line, previous = "", None
    for point, value in enumerate(classes):
        if value == previous:
            continue
        previous = value
        item = f"{{{point:#x}, {value}}}, "
        if len(line) + len(item) > 118:
            print(line.rstrip())
            line = ""
        line += item
    print(line.rstrip())


if __name__ == "__main__":
    sys.exit(main())

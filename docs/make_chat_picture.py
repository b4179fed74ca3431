"""Draws docs/chat.svg: a real conversation with the bundled model in a pseudo terminal.

    python3 docs/make_chat_picture.py build/release/bin/k3
"""
import html
import os
import pathlib
import pty
import re
import select
import sys
import textwrap
import time

QUESTIONS = ["Tom has 17 apples and buys 25 more. How many apples does Tom have?", "Sort the numbers 31, 8, 22 from smallest to largest."]
WIDTH, LINE, CHAR = 92, 20, 8.4  # columns, pixels a line, pixels a column


def converse(program):
    process, main = pty.fork()
    if process == 0:
        os.execv(program, [program, "chat"])
    seen = b""

    def wait_for_prompt(times):
        nonlocal seen
        deadline = time.time() + 120
        while seen.count(b"\n> ") < times and time.time() < deadline:
            if select.select([main], [], [], 0.2)[0]:
                seen += os.read(main, 4096)

    for number, question in enumerate(QUESTIONS, 1):
        wait_for_prompt(number)
        os.write(main, question.encode() + b"\n")
    wait_for_prompt(len(QUESTIONS) + 1)
    os.write(main, b"\x04")
    return seen.decode().replace("\r", "")


def lines_of(text):
    """(css class, line) with long lines wrapped."""
    dim = False
    for raw in text[text.index("\n> "):].rstrip("> \n").strip("\n").split("\n"):
        dim = dim or "\x1b[2m" in raw
        plain = re.sub(r"\x1b\[\d+m", "", raw)
        style = "dim" if dim else "you" if plain.startswith("> ") else "plain"
        if "\x1b[0m" in raw:
            dim = False
        for line in textwrap.wrap(plain, WIDTH) or [""]:
            yield style, line


def main(program):
    lines = [("you", "$ ./k3 chat"), ("plain", ""), *lines_of(converse(program))]
    height, width = (len(lines) + 2) * LINE, int(WIDTH * CHAR) + 40
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="DejaVu Sans Mono, Menlo, monospace" font-size="14">',
           "<style>.you{fill:#7ee787}.dim{fill:#8b949e}.plain{fill:#e6edf3}</style>",
           f'<rect width="{width}" height="{height}" rx="8" fill="#0d1117"/>']
    for number, (style, line) in enumerate(lines):
        out.append(f'<text x="20" y="{(number + 1.5) * LINE:.0f}" class="{style}" xml:space="preserve">{html.escape(line)}</text>')
    pathlib.Path(__file__).with_name("chat.svg").write_text("\n".join([*out, "</svg>", ""]))


if __name__ == "__main__":
    main(sys.argv[1])

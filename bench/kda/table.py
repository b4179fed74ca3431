"""Joins the lines of kda_bench and of peer.py into the table of the KDA goals: python3 bench/kda/table.py TIMES PEER JSON"""
import json
import re
import sys

THIRD = "a third of the peer"
# what | pattern of kda_bench's line | case of peer.py or None | goals in us, first and last, or THIRD
ROWS = [
    ("prefill B1 T8192 H96", r"prefill T8192 H96, conv gate norm fused", "prefill T8192 H96", (450, 320)),
    ("prefill B1 T8192 H32", r"prefill T8192 H32", "prefill T8192 H32", (220, 220)),
    ("prefill B1 T8192 H24", r"prefill T8192 H24", None, None),
    ("prefill B1 T8192 H16", r"prefill T8192 H16", None, None),
    ("prefill B1 T8192 H12", r"prefill T8192 H12", "prefill T8192 H12", (100, 80)),
    ("prefill B1 T8192 H12, long memory", r"prefill T8192 H12, long memory", None, None),
    ("prefill B1 T2048 H12", r"prefill T2048 H12", None, None),
    ("prefill 4 x 8192 H96", r"prefill 4 x 8192 H96", "prefill 4 x 8192 H96", (1500, 1200)),
    ("prefill one sequence of 1M tokens, H12", r"prefill one sequence of 1M tokens H12", "prefill T1M H12", THIRD),
    ("forward + backward T8192 H96", r"train T8192 H96 D128 forward \+ backward", "train T8192 H96 forward + backward", (5000, 3500)),
    ("forward T8192 H96", r"train T8192 H96 D128 forward", "train T8192 H96 forward", None),
    ("forward + backward 65536 packed, 4 heads of 64", r"train 65536x4x64 packed forward \+ backward", "train 65536x4x64 forward + backward", None),
    ("decode H96 batch 32", r"decode H96 batch 32", "decode H96 b32", (108, 108)),
    ("decode H96 batch 1", r"decode H96 batch 1", "decode H96 b1", (8, 8)),
    ("verify 8 tokens, H96 batch 32", r"verify 8 tokens H96 batch 32", "verify 8 H96 b32", (130, 130)),
]
LINE = re.compile(r"^(?P<what>\S.*?)  +(?P<us>[\d.]+) us \((?P<low>[\d.]+)\.\.(?P<high>[\d.]+)\)  floor +(?P<floor>[\d.]+) us")


def main():
    times_file, peer_file, out = sys.argv[1:]
    times = {m["what"].strip(): m for m in map(LINE.match, open(times_file)) if m}
    peers = {row["case"]: row for row in map(json.loads, open(peer_file))}
    table = []
    print(f"{'us, medians':48} {'measured':>9} {'floor':>8} {'ratio':>6} {'peer':>9} {'peer/ours':>9}  goal")
    for what, pattern, case, goals in ROWS:
        found = next((m for name, m in times.items() if re.fullmatch(pattern, name)), None)
        us, floor = (float(found["us"]), float(found["floor"])) if found else (None, None)
        peer = peers.get(case, {}).get("us")
        if goals == THIRD:
            goal, goals = THIRD, (peer / 3, peer / 3) if peer else None
        else:
            goal = "" if goals is None else f"{goals[0]}" + (f", then {goals[1]}" if goals[1] != goals[0] else "")
        reached = "" if goals is None or us is None else ("reached" if us <= goals[1] else "first reached" if us <= goals[0] else "not reached")
        table.append({"what": what, "us": us, "floor_us": floor, "peer_us": peer, "goals_us": goals, "reached": reached})
        cell = lambda x, digits=1: "-" if x is None else f"{x:.{digits}f}"
        print(f"{what:48} {cell(us):>9} {cell(floor):>8} {cell(us / floor if us else None, 2):>6} {cell(peer):>9} "
              f"{cell(peer / us if us and peer else None, 2):>9}  {goal} {reached}")
    all_times = [{"what": name, "us": float(m["us"]), "low_us": float(m["low"]), "high_us": float(m["high"]), "floor_us": float(m["floor"])} for name, m in times.items()]
    json.dump({"goals": table, "times": all_times, "peer": list(peers.values())}, open(out, "w"), indent=1)


main()

"""Sums an ncu --csv log of gpu__time_duration by kernel: count, total and share, largest first."""
import collections
import csv
import re
import sys

times = collections.defaultdict(lambda: [0, 0.0])
rows = [line for line in open(sys.argv[1], errors="replace") if line.startswith('"')]
for row in csv.DictReader(rows):
    value = float(row["Metric Value"].replace(",", "")) * {"ns": 1e-3, "us": 1, "usecond": 1, "ms": 1e3, "nsecond": 1e-3}[row["Metric Unit"]]
    name = re.sub(r"at::native::|\(anonymous namespace\)::|<unnamed>::|void ", "", row["Kernel Name"])[:150]
    times[name][0] += 1
    times[name][1] += value
total = sum(entry[1] for entry in times.values())
print(f"{sum(entry[0] for entry in times.values())} launches, {total / 1e3:.2f} ms")
for name, (count, spent) in sorted(times.items(), key=lambda item: -item[1][1])[:50]:
    print(f"{spent / 1e3:9.3f} ms {100 * spent / total:5.1f} % {count:6d}  {name}")

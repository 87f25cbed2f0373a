"""What the suite found, as Markdown and as a chart."""

import statistics
from collections.abc import Mapping, Sequence

from benchmarks.chart import bars
from benchmarks.contenders import CONTENDERS
from benchmarks.figures import BARE, OTHER, OURS, Race, Spread, geometric_mean, relative, speed
from benchmarks.networks import TITLES

LEAST = 0.97  # what the worst ratio to the better bare engine is held against


def document(
    races: Sequence[Race], peaks: Mapping[int, float], absent: Mapping[str, str], machine: Mapping[str, str]
) -> str:
    """The tables and the lines that sum them up."""
    lines = [
        "# The suite",
        "",
        f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}, {machine['date']}. Contenders are "
        "processes that stay alive and take turns. A ratio says how many times as fast Litehouse is: the median over "
        "the rounds, with the range of the middle 80 % of them.",
    ]
    lines += ["", *(f"- {name} is left out: {reason}" for name, reason in absent.items())]
    lines.append(f"- versions: {', '.join(_versions(races))}")
    if any(race.clock == "cpu" for race in races):
        lines.append("- times are CPU times of the processes, not of the clock on the wall")
    for threads, peak in sorted(peaks.items()):
        lines.append(f"- the most that {threads} thread(s) computed here: {peak / 1e9:.0f} GFLOP/s in float32")
    for format, contenders in CONTENDERS.items():  # noqa: A001 - the word for it
        own = sorted((race for race in races if race.format == format), key=_place)
        if own:
            names = [item.name for item in contenders if any(race.times(item.name) for race in own)]
            lines += ["", f"## From `.{format}`", "", *_table(own, names, peaks), "", *summary(own, names)]
            lines += [
                f"- {TITLES.get(race.network, race.network)}, batch {race.batch}, {race.threads} thread(s): {name} "
                f"failed ({lane.failed})"
                for race in own
                for name, lane in race.lanes.items()
                if lane.failed
            ]
    return "\n".join(lines) + "\n"


def _place(race: Race) -> tuple[int, int, int]:
    return list(TITLES).index(race.network) if race.network in TITLES else len(TITLES), race.batch, race.threads


def _versions(races: Sequence[Race]) -> list[str]:
    lanes = {name: lane.facts for race in races for name, lane in race.lanes.items() if "version" in lane.facts}
    return [f"{name} {facts['version']}" for name, facts in lanes.items()]


def _table(races: Sequence[Race], names: Sequence[str], peaks: Mapping[int, float]) -> list[str]:
    others = [name for name in names if name != OURS]
    head = ["network", "batch", "threads", "engine", "best, ms", "median, ms", "of the peak", *others]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for race in races:
        ours, times = race.lanes[OURS], race.times(OURS).values()
        best = min(times) if race.clock == "cpu" or ours.best is None else ours.best
        part = race.flops / best / peaks[race.threads] if race.threads in peaks else None
        cells = [TITLES.get(race.network, race.network), str(race.batch), str(race.threads)]
        cells += [str(ours.facts.get("engine", "")), milliseconds(best), milliseconds(statistics.median(times))]
        cells += [f"{part:.0%}" if part is not None else "–", *(cell(speed(race, name)) for name in others)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def milliseconds(seconds: float) -> str:
    """Three digits of it."""
    return f"{seconds * 1e3:.3g}" if seconds < 1 else f"{seconds * 1e3:.0f}"


def cell(found: Spread | None) -> str:
    """A median and its range."""
    return "–" if found is None else f"{found.median:.2f} [{found.low:.2f}, {found.high:.2f}]"


def summary(races: Sequence[Race], names: Sequence[str]) -> list[str]:
    """The geometric mean against each contender, and the worst ratio to the better bare engine."""
    lines = []
    for name in names:
        found = [one.median for race in races if name != OURS and (one := speed(race, name))]
        if found:
            lines.append(f"- {geometric_mean(found):.2f} times as fast as {name}, geometric mean of {len(found)} races")
    pairs = [(one.median, race) for race in races if (bare := race.better()) and (one := speed(race, bare))]
    if pairs:
        worst, race = min(pairs, key=lambda pair: pair[0])
        below = sum(ratio < LEAST for ratio, _ in pairs)
        where = f"{TITLES.get(race.network, race.network)}, batch {race.batch}, {race.threads} thread(s)"
        lines.append(f"- worst ratio to the better of {BARE} and {OTHER}: {worst:.2f} ({where})")
        lines.append(f"- below {LEAST} of it: {below} of {len(pairs)} races")
    return lines


def chart(races: Sequence[Race]) -> str:
    """Speed relative to bare ONNX Runtime per network: the geometric mean over batches and counts of threads."""
    names = [item.name for item in CONTENDERS["mindir"]]
    groups: dict[str, dict[str, float]] = {}
    for network in dict.fromkeys(race.network for race in sorted(races, key=_place) if race.format == "mindir"):
        group = {}
        for name in names:
            own = [race for race in races if race.network == network and race.format == "mindir"]
            found = [one.median for race in own if (one := relative(race, name, BARE))]
            if found:
                group[name] = geometric_mean(found)
        groups[TITLES.get(network, network).split(",")[0]] = group
    shown = [name for name in names if any(name in group for group in groups.values())]
    return bars("Speed relative to bare ONNX Runtime (higher is faster)", groups, shown)

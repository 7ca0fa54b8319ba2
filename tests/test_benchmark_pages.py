"""The benchmark pages are what the script makes of the results, and every result says where it is
from."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import median, stdev

import _benchmark_tables as tabled
import benchmark_pages as made
import pytest
from scipy import stats

ROOT = Path(__file__).resolve().parents[1]

TABLES = tabled.read_results(made.RESULTS)
ROWS = [(name, row) for name, rows in TABLES.items() for row in rows]
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md",
             *sorted(made.DOCS.rglob("*.md"))]


def line(**fields) -> dict:
    """Return a row with the required keys, and some of them or others set."""
    return dict.fromkeys(tabled.REQUIRED) | {"what": "w", "value": 10.0, "unit": "return",
                                             "table": "t"} | fields


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.*)$",
                       re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_committed_pages_and_charts_follow_from_the_results():
    assert made.outdated(TABLES) == []


def test_no_page_is_left_without_a_text():
    assert (
        {*(made.DOCS / "benchmarks").glob("*.md"), *(made.DOCS / x for x in made.PLACES.values())}
        == set(made.pages(TABLES))
    )


@pytest.mark.parametrize("key", ["what", "unit", "date", "machine", "versions", "command"])
def test_every_result_has_text_for(key: str):
    assert [name for name, row in ROWS if not (isinstance(row[key], str) and row[key])] == []


def test_every_result_has_a_value_or_a_ratio_and_a_date():
    runs_to_a_goal = {"atari/pong"}  # a run that was ended before the goal has no minutes to it
    for name, row in ROWS:
        assert re.fullmatch(r"2026-\d\d-\d\d", row["date"]), row
        lowered = row.get("stage") == "lower" and row.get("modules")
        assert row["value"] is not None or row.get("ratio") or lowered or name in runs_to_a_goal, (
            row
        )


def test_ratios_are_the_medians_of_their_turns():
    with_turns = [(n, r) for n, r in ROWS if r["turns"] and r.get("ratio")]
    assert len(with_turns) > 30
    for name, row in with_turns:
        assert row["ratio"] == pytest.approx(median(row["turns"]), abs=0.011), (name, row["what"])


def test_scores_are_the_means_of_their_seeds():
    with_seeds = [(n, r)
                  for n, r in ROWS
                  if n.startswith("learning/") and r.get("by_seed") and r["unit"] == "return"]
    assert len(with_seeds) > 80
    for name, row in with_seeds:
        assert row["value"] == pytest.approx(sum(row["by_seed"]) / len(row["by_seed"]),
                                             abs=1.0), (name, row["what"])


def digits(number: float) -> int:
    """Return the decimals of a number as written."""
    return len(f"{number:.6f}".partition(".")[2].rstrip("0"))


def test_intervals_are_the_t_intervals_of_their_seeds():
    """Within 2%, and what rounding the seeds' scores and the interval itself can change."""
    pairs = [("by_seed", "interval"), ("peer_by_seed", "peer_interval"),
             ("sorted_scores", "interval"), ("training_by_seed", "training_interval")]
    found = [(name, row["what"], row[scores], row[interval]) for name, row in ROWS
             for scores, interval in pairs
             if isinstance(row.get(scores), list) and isinstance(row.get(interval), (int, float))]
    assert len(found) > 100
    for name, what, scores, interval in found:
        n = len(scores)
        expected = stats.t.ppf(0.975, n - 1) * stdev(scores) / n**0.5
        half = lambda *numbers: 0.5 * 10.0 ** -max(map(digits, numbers))
        rounded = half(interval) + expected / stdev(scores) * half(*scores) if expected else 0.05
        assert interval == pytest.approx(expected, rel=0.02, abs=rounded), (name, what)


def test_every_table_but_history_is_on_a_page():
    texts = "".join(file.read_text() for file in made.TEXT.glob("*.md.in"))
    missing = [name for name in TABLES if not re.search(rf"\{{\{{ \w+ {name}(?=\s)", texts)]
    assert all(name.endswith("/earlier") for name in missing), missing


def test_lines_are_short():
    for path in made.pages(TABLES):
        text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S)
        assert [ln for ln in text.splitlines()
                if len(ln) > 100 and not ln.startswith("<!--")] == [], path.name


def test_charts_are_small():
    for path, *_ in made.CHARTS.values():
        assert path.stat().st_size < 100_000, path.name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_into_benchmarks_and_decisions_find_their_heading(document: Path):
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.M | re.S)
    for target, anchor in re.findall(r"\]\(([^)\s#:]*)#([^)\s]+)\)", text):
        page = (document.parent / target).resolve() if target else document
        if "benchmarks" in str(page.relative_to(ROOT)) or "decisions" in str(
            page.relative_to(ROOT)
        ):
            assert anchor in anchors(page), (
                f"{document.name} links to {target}#{anchor}, which has no such heading"
            )


def test_a_line_without_its_machine_is_refused(tmp_path):
    row = line(machine="m", versions="v")
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    assert tabled.read_results(tmp_path) == {"a/t": [row]}
    del row["machine"]
    (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(ValueError, match=r"a.jsonl line 1 .*machine"):
        tabled.read_results(tmp_path)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (line(unit="steps/s", peer="P", ratio=1.5), 1.5),
        (line(unit="s", peer="P", ratio=0.5), 2.0),  # half the time is twice as fast
        (line(unit="us", value=30, peer="P", peer_value=10), 0.33),
        (line(unit="steps/s", peer="P"), None),
    ],
)
def test_speedup_counts_time_the_other_way_round(row, expected):
    assert tabled.speedup(row) == expected


@pytest.mark.parametrize(("goal", "expected"),
                         [(9, "yes"), (10, "yes"), (11, "within"), (13, "no")])
def test_verdict_asks_value_then_interval(goal, expected):
    assert tabled.verdict(line(interval=2, published=[{"value": goal, "source": "s"}])) == expected
    assert tabled.verdict(line()) is None


def test_cells_omit_missing_values():
    values = {"value": "1", "interval": "2"}
    assert tabled.cell("{value}[ ± {interval}]", values) == "1 ± 2"
    assert tabled.cell("{value}[ ± {interval}]", {"value": "1"}) == "1"
    assert tabled.cell("{value} {unit}", values) == ""


def test_a_page_gets_its_table_its_grid_and_its_letters():
    rows = [line(what="x", value=1500, block=b, machine=f"m{b}", versions="v") for b in (1, 2)]
    text = (
        "# T\n\n{{ table a/t block=2\nWhat = {what}\nV = {value}\nOn = {on}\n}}\n\n{{ grid "
        "a/t\nWhat = {what}\n"
    )
    text += "columns = {block}\ncell = {value}\n}}\n\n{{ machines }}\n"
    page = made.page(text, {"a/t": rows}, "text/T.md.in")
    assert "| What | V | On |\n| --- | --- | --- |\n| x | 1,500 | a |" in page
    assert "| What | 1 | 2 |\n| --- | --- | --- |\n| x | 1,500 | 1,500 |" in page
    assert "- **a**: m2; v\n- **b**: m1; v" in page


def test_a_block_without_measurements_is_refused():
    with pytest.raises(ValueError, match="none"):
        made.page("# T\n\n{{ table a/b\nWhat = {what}\n}}\n", {"a/t": [line()]}, "text/T.md.in")


def test_the_speeds_in_the_readme_are_measurements():
    text = (ROOT / "README.md").read_text().partition("## Measured")[2].partition("| task |")[0]
    shown = re.findall(r"\b\d\.\d\d\b", re.sub(r"(jax|Python) [\d.]+", "", text))
    assert len(shown) > 8 and set(shown) <= {f"{x:.2f}"
                                             for _, row in ROWS if (x := tabled.speedup(row))}


T95 = 2.776  # Student's t of five seeds


def test_scores_on_fresh_seeds_are_of_five_seeds_with_their_interval():
    fresh = TABLES["learning/fresh_seeds"]
    assert len(fresh) > 40
    for row in fresh:
        assert row["seeds"] == "100-104" and len(row["by_seed"]) == 5, row["what"]
        assert row["interval"] == pytest.approx(T95 * stdev(row["by_seed"]) / 5**0.5, rel=0.03,
                                                abs=0.15), row["what"]


APG_BEFORE_RECORDS = {"-154 ± 13", "-149 ± 12"}  # other settings, seeds 0 to 4


def test_scores_quoted_of_algorithms_and_physics_are_results():
    results = [(row["value"], row["interval"]) for _, row in ROWS
               if isinstance(row.get("interval"), int | float) and row["value"] is not None]
    number = r"(-?[\d,]*\d(?:\.\d+)?)"
    quoted = {m for file in (*(made.DOCS / "algorithms").glob("*.md"), made.DOCS / "physics.md")
              for m in re.findall(rf"{number} ±\s+{number}", file.read_text())}
    assert len(quoted) > 15

    def rounds_to(x: float, shown: str) -> bool:
        digits = len(shown.partition(".")[2])
        return abs(x - float(shown.replace(",", ""))) <= 0.5001 * 10.0**-digits

    missing = {f"{mean} ± {half}" for mean, half in quoted
               if not any(rounds_to(x, mean) and rounds_to(i, half) for x, i in results)}
    assert missing == APG_BEFORE_RECORDS

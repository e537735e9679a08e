"""The page in headless Chromium (`make page-test`): how it looks, reads, moves and fails.

Pictures go to bench-output/page, or to PICTURES, as in: PICTURES=docs/images make page-test
"""

from __future__ import annotations

import io
import json
import os
import re
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from PIL import Image
from playwright.sync_api import expect

from controller.views.documents import Overview
from tests.fakes import view_documents as documents
from tests.page import chromium, worlds
from tests.page.conftest import Open
from tests.page.site import PREFIX, PageSite

PICTURES: Final = Path(os.environ.get("PICTURES") or "bench-output/page")
KEPT: Final = {  # those of docs/images
    ("small", 1440, "light"): "page.png",
    ("crowded", 1440, "dark"): "page-500-nodes.png",
    ("small", 360, "dark"): "page-phone.png",
}
WORLDS: Final = {"small": worlds.small, "crowded": worlds.crowded}
MOST_BYTES: Final = 300_000  # of page and first documents, as they are sent
LIVE: Final = re.compile("^Live")
RUNS: Final = 7
DRAWN: Final = """() => new Promise((resolve) => {
  const drawn = () => document.querySelector("#disks tbody");
  const done = () => requestAnimationFrame(() => setTimeout(() => {
    const { responseEnd } = performance.getEntriesByType("resource").find((one) => one.name.endsWith("/overview"));
    resolve(performance.now() - responseEnd);
  }));
  new MutationObserver((_, observer) => { if (drawn()) { observer.disconnect(); done(); } })
    .observe(document, { childList: true, subtree: true });
  if (drawn()) done();
})"""


def show_small(site: PageSite) -> None:
    site.show(worlds.small(), worlds.story())
    site.explain("pods/shop/full", documents.explanation())


def is_live(tab: Any) -> None:
    expect(tab.locator("#fresh")).to_have_text(LIVE)


def axe_findings(tab: Any) -> list[str]:
    """Of WCAG 2.2 A and AA and of good practice: the rule, and where."""
    tab.evaluate(chromium.AXE.read_text())  # by the debugger, which the page's policy does not bind
    result = tab.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{one['id']}: {node['target']} {node['failureSummary']}"
        for one in result["violations"]
        for node in one["nodes"]
    ]


def too_wide(tab: Any) -> list[str]:
    """What sticks out of the window to the right."""
    found: list[str] = tab.evaluate(
        """() => [...document.querySelectorAll("body *")].filter((one) =>
             one.getBoundingClientRect().right > innerWidth + 1 && !one.closest(".unseen, thead"))
             .map((one) => one.parentNode.className + ' > ' + one.outerHTML.slice(0, 60))"""
    )
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 768, 1440])
@pytest.mark.parametrize("world", WORLDS)
def test_it_is_drawn_without_a_finding(site: PageSite, open_page: Open, world: str, width: int, scheme: str) -> None:
    site.show(WORLDS[world](), worlds.story())
    tab = open_page(width=width, scheme=scheme)
    expect(tab.locator("#fresh")).to_have_text("Live, heard 1 s ago")
    name = KEPT.get((world, width, scheme))
    keep(tab, name or f"page-{world}-{width}-{scheme}.png", is_whole=name is None)
    assert [] == axe_findings(tab)
    assert [] == too_wide(tab)


def keep(tab: Any, name: str, *, is_whole: bool) -> None:
    """As a small PNG: few colours are enough for bars and text."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    taken = Image.open(io.BytesIO(tab.screenshot(full_page=is_whole))).convert("RGB")
    taken.quantize(255, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(PICTURES / name, optimize=True)


@pytest.mark.parametrize("width", [360, 1440])
def test_answers_and_banners_are_without_a_finding(
    site: PageSite, open_page: Open, console: list[str], width: int
) -> None:
    following = documents.following()
    site.show(documents.troubled(), worlds.story())
    site.explain("pods/shop/full", documents.explanation())
    site.explain("pods/shop/orders-0", documents.let_through())
    tab = open_page("/#pods/shop/full", width=width)
    expect(tab.locator("#answer h3")).to_contain_text("Pod shop/full")
    tab.locator("#answer summary").first.click()
    is_live(tab)
    assert [] == axe_findings(tab)
    assert [] == too_wide(tab)
    keep(tab, f"page-answer-{width}.png", is_whole=True)
    tab.goto(f"{site.address}/#pods/shop/orders-0")
    expect(tab.locator("#answer")).to_contain_text("the most usable bytes")
    expect(tab.locator("#answer")).not_to_contain_text(re.compile("null|undefined|NaN"))
    assert [] == axe_findings(tab)
    site.show(following)
    expect(tab.locator("#follower")).to_be_visible()
    site.refuse("503 Service Unavailable")
    expect(tab.locator("#stale")).to_be_visible()
    assert [] == axe_findings(tab)
    assert [] == too_wide(tab)
    keep(tab, f"page-stale-{width}.png", is_whole=False)
    console.clear()


def test_what_it_needs_is_small_and_how_fast_it_is_drawn(
    site: PageSite, open_page: Open, capsys: pytest.CaptureFixture[str]
) -> None:
    """The bytes are judged. The time is told: from the last byte of the overview to the frame that shows the disks."""
    site.show(worlds.crowded(), worlds.busy_day())
    times = []
    for _ in range(RUNS):
        tab = open_page()
        times.append(tab.evaluate(DRAWN))
        is_live(tab)
    files = sum(size for path, size in site.sent.items() if path == "/" or path.startswith("/page/"))
    total = sum(site.sent.values())
    figures = {
        "drawn_ms": {"median": statistics.median(times), "least": min(times), "most": max(times)},
        "sent_bytes": {
            "all": total,
            "page and its files": files,
            **{path: site.sent[path] for path in ("/overview", "/decisions")},
        },
        "overview_bytes": len(documents.encoded(site.document("/overview"))),
    }
    with capsys.disabled():
        print(f"\n{json.dumps(figures, indent=2)}")
    assert total < MOST_BYTES


def test_everything_is_reached_by_keyboard(site: PageSite, open_page: Open) -> None:
    show_small(site)
    tab = open_page()
    is_live(tab)
    tab.keyboard.press("Tab")
    expect(tab.locator(".skip")).to_be_focused()
    expect(tab.locator(".skip")).to_be_in_viewport()
    tab.keyboard.press("Enter")
    expect(tab.locator("#content")).to_be_focused()
    tab.goto(site.address)
    is_live(tab)
    wanted = tab.evaluate(
        """() => [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")]
             .filter((one) => one.checkVisibility()).map((one, index) => (one.dataset.stop = index))"""
    )
    reached = []
    for _ in wanted:
        tab.keyboard.press("Tab")
        reached.append(
            tab.evaluate(
                """() => {
                     const one = document.activeElement, { bottom, top } = one.getBoundingClientRect();
                     const seen = getComputedStyle(one).outlineStyle !== "none" && bottom > 0 && top < innerHeight;
                     return seen ? Number(one.dataset.stop) : one.outerHTML;
                   }"""
            )
        )
    assert wanted == reached


def test_news_are_shown_and_keep_the_focus(site: PageSite, open_page: Open) -> None:
    show_small(site)
    tab = open_page()
    is_live(tab)
    tab.get_by_role("link", name="shop/full").first.focus()
    again = replace(worlds.small().waiting[0], tried="2026-11-28T13:59:59Z")
    site.show(replace(documents.troubled(), waiting=(again,)), [*worlds.story(), *documents.decisions(201)[-1:]])
    expect(tab.locator("#problems")).to_contain_text("Others may place replicas")
    expect(tab.locator("#told")).to_have_text("5 problems")
    expect(tab).to_have_title(re.compile("^5 problems, "))
    expect(tab.locator("#decisions > li").first).to_contain_text("shop/orders-200")
    expect(tab.locator("#disks tbody")).to_have_count(4)
    expect(tab.locator("#waiting")).to_contain_text(re.compile(r"last asked \d s ago"))
    expect(tab.get_by_role("link", name="shop/full").first).to_be_focused()


def test_decisions_are_asked_for_once_and_anew_from_another_leader(site: PageSite, open_page: Open) -> None:
    show_small(site)
    tab = open_page()
    expect(tab.locator("#decisions > li")).to_have_count(200)
    site.show(documents.overview(worlds.small().disks, identity="another", term=8), documents.decisions(3))
    expect(tab.locator("#decisions > li")).to_have_count(3)


def test_a_page_that_hears_nothing_says_since_when_and_recovers(
    site: PageSite, open_page: Open, console: list[str]
) -> None:
    show_small(site)
    tab = open_page()
    is_live(tab)
    expect(tab.locator("#stale")).to_be_hidden()
    site.refuse("503 Service Unavailable")
    notice = tab.get_by_role("alert").filter(has_text="Stale since")
    expect(notice).to_have_text(
        re.compile(r"Stale since [\d: -]+ UTC. The leader does not answer \(overview answers 503: not now")
    )
    expect(tab.locator("#fresh")).to_have_text(re.compile(r"^Stale for \d+ s, (next try in \d+ s|trying now)$"))
    expect(tab).to_have_title(re.compile("^stale, "))
    expect(tab.locator("#disks tbody")).to_have_count(4)
    site.refuse("")
    tab.get_by_role("button", name="Try now").click()
    expect(tab.locator("#stale")).to_be_hidden()
    is_live(tab)
    site.close()
    expect(notice).to_contain_text("Failed to fetch")
    console.clear()


@pytest.mark.parametrize("status", ["401 Unauthorized", "403 Forbidden"])
def test_a_port_that_wants_a_token_is_named(site: PageSite, open_page: Open, console: list[str], status: str) -> None:
    site.refuse(status)
    tab = open_page()
    expect(tab.get_by_role("alert").filter(has_text="Nothing heard yet")).to_contain_text("kubectl port-forward")
    console.clear()


def test_nobody_who_looks_away_is_served_often(site: PageSite, open_page: Open) -> None:
    show_small(site)
    tab = open_page()
    is_live(tab)
    tab.clock.install()
    tab.reload()
    is_live(tab)
    hide = "(hidden) => { Object.defineProperty(document, 'hidden', { value: hidden, configurable: true }); }"
    tab.evaluate(hide, arg=True)
    tab.clock.run_for(3_000)  # the round that was due when it was hidden
    expect(tab.locator("#fresh")).to_have_text(LIVE)
    asked = site.asked["/overview"]
    tab.clock.run_for(20_000)
    assert asked == site.asked["/overview"]
    with tab.expect_response("**/overview"):
        tab.evaluate(hide, arg=False)
        tab.evaluate("() => document.dispatchEvent(new Event('visibilitychange'))")


def test_a_search_is_answered_as_explain_does(site: PageSite, open_page: Open, console: list[str]) -> None:
    show_small(site)
    site.explain("volumes/pvc-7d1e", documents.let_through())
    tab = open_page()
    is_live(tab)
    box = tab.get_by_label("namespace/name")
    box.fill("full")
    box.press("Enter")
    expect(tab.locator("#why-wrong")).to_have_text("Write the pod as namespace/name.")
    box.fill("shop/full")
    box.press("Enter")
    answer = tab.locator("#answer")
    expect(answer).to_be_focused()
    expect(answer).to_contain_text("2/d1 lacks 12 GiB, and all others lack more.")
    expect(answer).to_contain_text("What would help: Make 12 GiB free on n2/d1")
    expect(answer.get_by_role("row")).to_have_count(5)
    expect(answer.get_by_role("row").nth(1)).to_contain_text("12 GiB are missing on n2/d1")
    answer.locator("summary").first.click()
    expect(answer).to_contain_text("90 GiB stored: 4 volumes of other namespaces")
    assert tab.url.endswith("#pods/shop/full")
    tab.get_by_label("Of", exact=True).select_option("volumes")
    tab.get_by_label("name", exact=True).fill("pvc-7d1e")
    tab.get_by_role("button", name="Explain").click()
    expect(answer).to_contain_text("the most usable bytes of the zone's disks")
    tab.go_back()
    expect(answer).to_contain_text("What would help")
    tab.get_by_role("button", name="Close the answer").click()
    expect(answer).to_be_hidden()
    tab.get_by_role("link", name="shop/full").first.click()
    expect(answer).to_contain_text("What would help")
    tab.goto(f"{site.address}/#claims/shop/none")
    expect(answer).to_contain_text("Not found")
    console.clear()


def test_an_open_answer_is_asked_for_again(site: PageSite, open_page: Open) -> None:
    show_small(site)
    tab = open_page("/#pods/shop/full")
    expect(tab.locator("#answer")).to_contain_text("What would help")
    site.explain("pods/shop/full", documents.let_through())
    expect(tab.locator("#answer")).to_contain_text("The pod was let through", timeout=20_000)


def test_disks_are_filtered_and_sorted(site: PageSite, open_page: Open) -> None:
    site.show(worlds.crowded(), worlds.story())
    tab = open_page()
    is_live(tab)
    nodes = tab.locator("#disks tbody")
    expect(nodes).to_have_count(12)
    expect(tab.locator("#shown")).to_have_text("12 of 500 nodes shown.")
    more = tab.get_by_role("button", name="Show 80 more of 488 nodes")
    more.click()
    expect(nodes).to_have_count(92)
    expect(nodes.nth(12).locator("th").first).to_be_focused()
    tab.get_by_label("Sort by").select_option("name")
    expect(nodes.first).to_contain_text("node-000.example")
    tab.get_by_role("searchbox", name="Filter").fill("node-12 disk-3")
    expect(nodes).to_have_count(10)
    expect(nodes.first.locator("tr")).to_have_count(1)
    tab.get_by_role("searchbox", name="Filter").fill("")
    tab.get_by_label("only closed or over the limit").check()
    fullest = tab.get_by_role("button", name=re.compile("^100 % and more taken"))
    fullest.click()
    expect(fullest).to_have_attribute("aria-pressed", "true")
    expect(nodes.first.locator("td.taken").first).to_have_text(re.compile(r"^(> )?1\d\d %$"))
    tab.get_by_role("searchbox", name="Filter").fill("nothing is called this")
    expect(tab.locator("#shown")).to_have_text("No disk is like that.")


@pytest.mark.parametrize("width", [360, 1440])
def test_names_that_mean_harm_are_shown_as_they_are(site: PageSite, open_page: Open, width: int) -> None:
    site.show(worlds.hostile(), worlds.hostile_decisions())
    site.explain("pods/a/b", worlds.hostile_explanation())
    tab = open_page("/#pods/a/b", width=width)
    is_live(tab)
    expect(tab.locator("#answer h3")).to_contain_text(worlds.MARKUP)
    for part in ("problems", "waiting", "plans", "decisions", "disks", "inside", "answer"):
        for name in worlds.HARMFUL:
            expect(tab.locator(f"#{part}")).to_contain_text(name)
    assert 0 == tab.locator("body script, img[src=x]").count()
    assert [] == too_wide(tab)
    assert [] == axe_findings(tab)
    keep(tab, f"page-hostile-{width}.png", is_whole=True)


def test_it_lies_behind_a_prefix_as_well(site: PageSite, open_page: Open) -> None:
    show_small(site)
    tab = open_page(f"{PREFIX}/#pods/shop/full")
    is_live(tab)
    expect(tab.locator("#answer")).to_contain_text("What would help")
    assert [] == [path for path in site.asked if not path.startswith(PREFIX)]


def test_the_theme_can_be_chosen_and_stays(site: PageSite, open_page: Open) -> None:
    show_small(site)
    tab = open_page(scheme="dark")
    ground = "() => getComputedStyle(document.body).backgroundColor"
    dark = tab.evaluate(ground)
    tab.get_by_role("button", name="Theme: auto").click()
    light = tab.evaluate(ground)
    assert dark != light
    tab.reload()
    expect(tab.get_by_role("button", name="Theme: light")).to_be_visible()
    assert light == tab.evaluate(ground)
    tab.get_by_role("button", name="Theme: light").click()
    assert dark == tab.evaluate(ground)


def test_nothing_moves_for_whom_motion_hurts(site: PageSite, open_page: Open) -> None:
    show_small(site)
    moves = "() => getComputedStyle(document.querySelector('#disks .part')).transitionDuration"
    for preference, seconds in (("reduce", "0s"), ("no-preference", "0.3s")):
        tab = open_page(reduced_motion=preference)
        is_live(tab)
        assert seconds == tab.evaluate(moves)


def test_workers_are_named_where_one_is_not_well(site: PageSite, open_page: Open) -> None:
    site.show(documents.troubled())
    tab = open_page()
    is_live(tab)
    inside = tab.locator("#inside")
    expect(inside).to_contain_text("failed 3 times: timed out")
    expect(inside.get_by_text("placer, sweeper, waker")).to_be_hidden()
    inside.get_by_text("3 well").click()
    expect(inside.get_by_text("placer, sweeper, waker")).to_be_visible()


@pytest.mark.parametrize("overview", [documents.overview([]), documents.following()], ids=["no disk", "a follower"])
def test_it_says_what_is_missing(site: PageSite, open_page: Open, console: list[str], overview: Overview) -> None:
    site.show(overview)
    tab = open_page()
    is_live(tab)
    if not overview.disks:
        expect(tab.locator("#shown")).to_have_text("The leader knows no disk yet.")
    else:
        expect(tab.locator("#follower")).to_contain_text(
            f"The leader is {documents.LEADER}: forward a port to that pod."
        )
    assert [] == axe_findings(tab)
    console.clear()  # there is no capacity without a disk

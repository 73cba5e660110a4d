"""The page in a real browser: by click, upload, drop, keyboard; light, dark, phone; nothing on the console."""

import os
import re
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from pictures import encoded, picture, write_folder
from processes import Popen

from shorthash.images import fit_images
from shorthash.images.features import GistFeatures

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no Chromium here; on Debian: apt-get install chromium"
)
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
TOKEN = "secret"
DESK = {"width": 1280, "height": 860}
LOOKS = {
    "light": {"viewport": DESK, "color_scheme": "light"},
    "dark": {"viewport": DESK, "color_scheme": "dark"},
    "phone": {
        "viewport": {"width": 390, "height": 844},
        "device_scale_factor": 2,
        "is_mobile": True,
        "has_touch": True,
    },
}


@contextmanager
def serving(model, token=None):
    """`shorthash serve` on a free port; its address."""
    command = [sys.executable, "-m", "shorthash", "serve", str(model), "--port", "0", "--rate", "0"]
    settings = {**os.environ, **({"SHORTHASH_TOKEN": token} if token else {})}
    with Popen(command, stdout=subprocess.PIPE, text=True, env=settings) as process:
        try:
            lines = "".join(process.stdout.readline() for _ in range(2))
            yield re.search(r"http://[\d.:]+", lines).group()
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser")
    model = folder / "patterns.model"
    fit_images(write_folder(folder / "photos", 10), model, n_bits=4, features=GistFeatures(32), method="rslh")
    with serving(model, TOKEN) as found:
        yield found


@pytest.fixture(scope="module")
def chromium():
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium):
    """Open pages whose console must stay silent."""
    contexts, messages = [], []

    def open_page(url, **options):
        context = chromium.new_context(**{**LOOKS["light"], **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda m: messages.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: messages.append(str(error)))
        page.goto(url)
        return page

    open_page.console = messages
    yield open_page
    for context in contexts:
        context.close()
    assert not messages


@pytest.fixture
def keep():
    """Keep a screenshot in SHORTHASH_SCREENSHOTS, if that is set."""
    folder = os.environ.get("SHORTHASH_SCREENSHOTS")
    if not folder:
        return lambda page, name: None
    Path(folder).mkdir(parents=True, exist_ok=True)
    return lambda page, name: page.screenshot(path=Path(folder, f"{name}.png"))


def settled(page):
    page.wait_for_selector("#results:not([aria-busy])")


def test_search_by_click_and_back_again(address, opened, keep):
    page = opened(address)
    assert page.locator(".start .tile").count() == 30
    page.locator(".start .tile").nth(4).click()
    page.wait_for_selector(".query")
    assert re.search(r"\?id=\d+$", page.url)
    assert "neighbours" in page.locator("#status").text_content()
    assert page.locator(".ring .bucket").count() >= 1
    first = page.url
    page.locator(".ring .tile").first.click()
    box = page.locator("#lightbox")
    box.locator("text=bit from the query").or_(box.locator("text=bits from the query")).first.wait_for()
    assert "it is in the training set" in box.text_content()
    keep(page, "lightbox")
    page.keyboard.press("Escape")
    assert page.url == first
    page.locator(".ring .tile").first.click()
    box.locator("text=Search with this").click()
    page.wait_for_url(lambda url: url != first)
    settled(page)
    page.go_back()
    page.wait_for_url(first)
    page.go_back()
    page.wait_for_selector(".start")
    page.go_forward()
    page.wait_for_selector(".query")
    assert page.locator("#id").input_value() == first.partition("id=")[2]
    page.reload()
    assert page.locator(".query .query-image").evaluate("image => image.naturalWidth") > 0


def test_search_by_keyboard_alone(address, opened):
    page = opened(address)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.locator(".start .tile").first.focus()
    page.keyboard.press("ArrowRight")
    second = page.locator(".start .tile").nth(1)
    assert second.evaluate("tile => tile === document.activeElement")
    assert second.evaluate("tile => getComputedStyle(tile).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    page.wait_for_selector(".query")
    assert page.evaluate("document.activeElement.id") == "results"
    page.locator("#id").fill("7")
    page.keyboard.press("Enter")
    page.wait_for_url("**/?id=7")
    settled(page)
    page.locator("#radius").focus()
    page.keyboard.press("Home")
    page.wait_for_url("**/?id=7&radius=0")
    settled(page)
    assert page.locator(".ring").count() <= 1
    page.locator("#rerank").focus()
    page.keyboard.press("Space")
    page.wait_for_url("**rerank=1")


def test_sliders_change_results_live(address, opened, keep):
    page = opened(f"{address}/?id=3")
    page.locator("#radius").fill("4")
    page.wait_for_url("**radius=4")
    settled(page)
    assert page.locator("#radius-text").text_content() == "4 of 4 bits"
    assert page.locator(".ring .tile").count() == 29
    keep(page, "synthetic-search")
    page.locator("#k").fill("10")
    page.wait_for_url("**k=10**")
    settled(page)
    page.wait_for_selector("text=10 neighbours")
    assert page.locator(".ring .tile").count() == 10
    assert page.locator("#status").text_content().startswith("10 neighbours")
    page.locator("label[for=rerank]").click()
    page.wait_for_selector(".ring .badge")
    cosines = [float(text.split()[0]) for text in page.locator(".badge").all_text_contents()]
    assert cosines == sorted(cosines, reverse=True)
    page.locator(".bars a").first.click()
    page.wait_for_url("**radius=0**")
    page.go_back()
    assert page.url == "about:blank"  # moving a slider adds nothing to the history


def test_sliders_start_from_the_address(address, opened):
    """The values of the first address are not the defaults."""
    page = opened(f"{address}/?id=3&radius=4")
    for radius, query in (("1", "id=3&radius=1"), ("4", "id=3&radius=4"), ("2", "id=3")):
        page.locator("#radius").fill(radius)
        page.wait_for_url(f"{address}/?{query}")
    page.reload()
    assert page.locator("#radius").input_value() == "2"


def test_an_uploaded_picture_is_searched_and_its_code_is_the_address(address, opened, keep):
    page = opened(address)
    mine = {"name": "mine.png", "mimeType": "image/png", "buffer": encoded(picture("rings", 77))}
    page.set_input_files("#image", mine)
    page.wait_for_selector(".query")
    page.wait_for_url(re.compile(r"\?code=[01]{4}$"))
    assert page.locator(".query-image").evaluate("image => image.naturalWidth") == 64
    assert page.locator("h1").text_content() == "Your picture"
    page.locator("#radius").fill("4")
    page.wait_for_url("**radius=4")
    page.locator("label[for=rerank]").click()
    page.wait_for_selector(".badge")
    keep(page, "synthetic-upload")
    page.locator(".ring .tile").first.click()
    page.locator("text=Search with this").click()
    page.wait_for_url("**/?id=**")
    page.go_back()
    page.wait_for_selector("h1:text('Your picture')")
    page.reload()
    page.wait_for_selector(".note")  # the picture is gone, its code is not


def test_a_picture_is_dropped_or_pasted(address, opened):
    page = opened(address)
    octets = list(encoded(picture("stripes", 5)))
    give = """([octets, kind]) => {
        const held = new DataTransfer();
        held.items.add(new File([new Uint8Array(octets)], "a.png", { type: "image/png" }));
        const event = kind === "drop" ? new DragEvent("drop", { dataTransfer: held, bubbles: true, cancelable: true })
            : new ClipboardEvent("paste", { clipboardData: held, bubbles: true });
        document.body.dispatchEvent(event);
    }"""
    for kind in ("drop", "paste"):
        page.goto(address)
        page.evaluate(give, [octets, kind])
        page.wait_for_url(re.compile(r"\?code=[01]{4}$"))
        assert page.locator("h1").text_content() == "Your picture"


def test_problems_are_shown(address, opened):
    page = opened(address)
    page.set_input_files("#image", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"text"})
    assert "a.txt is not a picture" in page.locator("[role=alert]").text_content()
    page.set_input_files("#image", {"name": "a.png", "mimeType": "image/png", "buffer": b"no picture"})
    page.wait_for_selector("[role=alert]:has-text('cannot be used')")
    page.locator("#id").fill("<b>nobody</b>")
    page.keyboard.press("Enter")
    page.wait_for_selector("[role=alert]:has-text('integers')")
    assert page.locator("[role=alert] b").count() == 0
    refused = [text for text in opened.console if "422" in text or "404" in text]
    assert len(refused) == 2  # Chromium itself logs the two refusals
    opened.console[:] = [text for text in opened.console if text not in refused]


def test_buckets_open_by_click_and_by_keyboard(address, opened, keep):
    page = opened(f"{address}/map")
    cells = page.locator(".cell")
    assert cells.count() >= 3
    cells.first.click()
    page.wait_for_selector("#bucket .tile")
    assert page.url.endswith("code=" + cells.first.get_attribute("data-code"))
    assert cells.first.get_attribute("aria-current") == "true"
    assert page.locator(".neighbours li").count() == 4
    first = page.url
    for key in ("ArrowRight", "ArrowDown", "ArrowLeft", "ArrowUp"):
        page.keyboard.press(key)
    focused = page.evaluate("document.activeElement.dataset.code")
    assert page.locator("#pointed").text_content().startswith(focused)
    page.locator(".cell").last.focus()
    page.keyboard.press("Enter")
    page.wait_for_url(lambda url: url != first)
    page.wait_for_selector("#bucket .tile")
    page.go_back()
    page.wait_for_url(first)
    page.locator(".neighbours a").first.click()
    page.wait_for_url(lambda url: url != first)
    page.locator(".legend a").first.click()
    page.wait_for_selector(".cell.pale")


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_in_every_look(address, opened, keep, look):
    page = opened(address, **LOOKS[look])
    for name, path in {
        "start": "/",
        "search": "/?id=3&radius=4",
        "map": "/map?code=0000",
        "bits": "/bits",
        "model": "/model",
    }.items():
        page.goto(address + path, wait_until="load")
        keep(page, f"synthetic-{look}-{name}")
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, f"{name} is too wide"
        ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
        lightness = sum(map(int, re.findall(r"\d+", ground)[:3])) / 765
        assert (lightness < 0.2) == (look == "dark")


def test_without_scripts_the_page_still_searches(address, opened):
    page = opened(address, java_script_enabled=False)
    page.locator(".start .tile").first.click()
    page.wait_for_selector(".query")
    page.set_input_files("#image", {"name": "a.png", "mimeType": "image/png", "buffer": encoded(picture("rings", 3))})
    page.locator("#upload button").click()
    page.wait_for_selector("text=Your picture")
    page.goto(f"{address}/map")
    page.locator(".cell").first.click()
    page.wait_for_selector("#bucket .tile")


@pytest.mark.data
def test_24_classes_of_photographs(data_folder, tmp_path, opened, keep):
    """Six photographs of every class, with GIST: the map is readable on a phone, and searches find pictures."""
    for folder in sorted((data_folder / "images24").iterdir()):
        if folder.is_dir():
            shutil.copytree(folder, tmp_path / "photos" / folder.name, ignore=lambda _, names: sorted(names)[6:])
    model = tmp_path / "photos.model"
    fit_images(tmp_path / "photos", model, n_bits=8, features="gist", method="rslh")
    with serving(model) as address:
        for look, options in LOOKS.items():
            page = opened(f"{address}/?id=20&radius=3", **options)
            assert page.locator(".ring .tile").count() >= 1
            page.wait_for_load_state("networkidle")
            keep(page, f"photographs-{look}-search")
            page.goto(f"{address}/map")
            assert page.locator(".legend li").count() == 24
            letters = page.locator(".legend b").all_text_contents()
            assert len(set(letters)) == 24
            page.locator(".cell").nth(5).click()
            page.wait_for_selector("#bucket .tile")
            page.wait_for_load_state("networkidle")
            page.evaluate("scrollTo(0, 0)")
            keep(page, f"photographs-{look}-map")
            box = page.locator(".cell .ground").first.bounding_box()
            assert box["width"] >= 16
            size = page.locator(".cell text").first.evaluate("t => t.getBoundingClientRect().height")
            assert size >= 8


@pytest.fixture(scope="session")
def axe(tmp_path_factory):
    """The source of axe-core, installed for the test: its licence is not ours, so it is not part of the project."""
    if shutil.which("npm") is None:
        pytest.skip("there is no npm here to install axe-core with")
    folder = tmp_path_factory.mktemp("axe")
    words = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder, "axe-core@4"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        pytest.skip(f"npm cannot install axe-core: {done.stderr[:200]}")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text()


@pytest.mark.parametrize("look", ["light", "dark", "phone"])
def test_no_page_has_a_serious_accessibility_problem(address, opened, axe, look):
    found, page = [], opened(address, **LOOKS[look])
    for path in ("/", "/?id=3&rerank=1", "/?q=rings", "/?code=0101", "/map", "/bits", "/model", "/item?id=3"):
        page.goto(address + path)
        page.evaluate(axe)
        problems = page.evaluate("axe.run({resultTypes: ['violations']}).then(found => found.violations)")
        found += [
            f"{path}: {each['id']}: {each['nodes'][0]['html'][:150]}"
            for each in problems
            if each["impact"] in ("serious", "critical")
        ]
    assert not found, "\n".join(found)


def test_titles_text_search_and_more(address, opened, keep):
    page = opened(f"{address}/?q=rings")
    assert page.title().startswith("“rings” · ")
    assert page.locator(".start .tile").count() == 10
    keep(page, "text-search")
    page.locator(".start .tile").first.click()
    page.wait_for_selector(".query")
    settled(page)
    assert page.title().startswith("Near rings")
    page = opened(f"{address}/?id=3&k=5&radius=4")
    before = page.locator(".ring .tile").count()
    page.locator(".more a").first.click()
    page.wait_for_url(lambda url: "k=10" in url)
    settled(page)
    assert page.locator(".ring .tile").count() > before


def test_on_a_phone_results_come_first(address, opened, keep):
    page = opened(f"{address}/?id=3", **LOOKS["phone"])
    page.wait_for_selector("html.js")
    assert page.locator(".query").bounding_box()["y"] < 400
    page.locator(".sheet > summary").click()
    assert page.locator("#radius").is_visible()
    keep(page, "phone-sheet")


def test_on_a_phone_buckets_are_a_list_too(address, opened, keep):
    page = opened(f"{address}/map", **LOOKS["phone"])
    rows = page.locator(".bucket-list a")
    assert rows.count() == page.locator(".cell").count()
    targets = page.locator(".bucket-list > ul a, .cell .ground").all()
    assert min(min(box["width"], box["height"]) for box in (t.bounding_box() for t in targets)) >= 43.99
    rows.nth(1).click()
    page.wait_for_selector("#bucket .tile")
    assert rows.nth(1).get_attribute("aria-current") == "true"
    assert page.locator("#bucket .bits").first.text_content() == rows.nth(1).get_attribute("data-code")
    page.evaluate("scrollTo(0, 0)")
    keep(page, "phone-map-list")
    assert not opened(f"{address}/map").locator(".bucket-list").is_visible()


def test_a_holder_of_the_token_adds_labels_removes_and_undoes(address, opened, keep):
    page = opened(address)
    page.locator(".write > summary").click()
    page.locator("#token").fill(TOKEN)
    page.locator("#new-label").fill("<i>mine</i>")
    new = [{"name": f"{i}.png", "mimeType": "image/png", "buffer": encoded(picture("rings", 900 + i))} for i in (1, 2)]
    page.set_input_files("#new-images", new)
    page.wait_for_selector("#toast:has-text('2 added')")
    page.wait_for_selector("text=were added later")
    page.locator("text=Only those added later").click()
    page.wait_for_url("**new=1**")
    settled(page)
    assert page.locator(".start .tile").count() == 2
    keep(page, "write-added")
    page.locator(".start .tile").first.click()
    page.wait_for_selector(".query h1:has-text('<i>mine</i>')")
    page.locator("a:text('Details')").click()
    page.locator("#lightbox #label").fill("yours")
    keep(page, "write-item")
    page.locator("#lightbox button:text('Save')").click()
    page.wait_for_selector(".query h1:has-text('yours')")
    page.locator("#toast button").click()
    page.wait_for_selector(".query h1:has-text('<i>mine</i>')")
    page.locator("#radius").fill("4")
    page.wait_for_url("**radius=4**")
    settled(page)
    tile = page.locator(".ring .tile:has-text('<i>mine</i>')")
    tile.click()
    page.locator("#lightbox button:text('Remove this item')").click()
    tile.wait_for(state="hidden")
    page.locator("#toast button").click()
    tile.wait_for()
    tile.click()
    page.locator("#lightbox button:text('Remove this item')").click()
    for _ in range(50):  # leaving the page removes it now; the next page may be asked for before the removal
        page.goto(f"{address}/?new=1")
        if page.locator(".start .tile").count() == 1:
            break
        page.wait_for_timeout(200)
    assert page.locator(".start .tile").count() == 1
    page.locator("#token").fill("wrong")
    page.set_input_files("#new-images", new[1:])
    page.wait_for_selector("#toast:has-text('The token is wrong')")
    opened.console.clear()  # the browser says itself that this was refused


def test_errors_are_pages_for_people(address, opened):
    page = opened(address)
    with page.expect_console_message():  # the browser says itself that the page is missing
        answer = page.goto(f"{address}/nowhere")
    assert answer.status == 404
    assert page.locator("h1").text_content() == "Not Found"
    opened.console.clear()

// The code map: marks have descriptions, arrow keys move between them, buckets open beside the map and its list.

import { isPlain, nearest, show } from "./fragments.js";

const map = document.getElementById("map");
const bucket = document.getElementById("bucket");
const pointed = document.getElementById("pointed");
const cells = [...map.querySelectorAll(".cell")];
const list = document.querySelector(".bucket-list"); // shown on phones; absent where there is no bucket

document.documentElement.classList.add("js");
rove(map.querySelector("[aria-current]") ?? cells[0]);

/** Only one mark can be reached with the tab key. */
function rove(cell) {
  for (const other of cells) other.setAttribute("tabindex", other === cell ? "0" : "-1");
}

async function open(url, how) {
  const code = new URL(url, location.href).searchParams.get("code");
  for (const cell of [...cells, ...(list?.querySelectorAll("a") ?? [])]) {
    if (cell.dataset.code === code) cell.setAttribute("aria-current", "true");
    else cell.removeAttribute("aria-current");
  }
  if (how === "push") history.pushState(null, "", url);
  await show(bucket, url);
  bucket.scrollTop = 0;
  if (how === "push" && bucket.getBoundingClientRect().top > innerHeight * 0.7) bucket.scrollIntoView();
}

function describe(event) {
  const cell = event.target.closest?.(".cell");
  if (cell) pointed.textContent = cell.getAttribute("aria-label");
}

map.addEventListener("pointerover", describe);
map.addEventListener("focusin", describe);
map.addEventListener("keydown", (event) => {
  const cell = event.target.closest(".cell");
  if (!cell || !event.key.startsWith("Arrow")) return;
  event.preventDefault();
  const next = nearest(event.key, cell, cells);
  if (!next) return;
  rove(next);
  next.focus();
});
map.addEventListener("click", (event) => {
  const cell = event.target.closest(".cell");
  if (!cell || !isPlain(event)) return;
  event.preventDefault();
  rove(cell);
  open(cell.getAttribute("href"), "push");
});
for (const place of [bucket, list]) {
  place?.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-bucket]");
    if (!link || !isPlain(event)) return;
    event.preventDefault();
    open(link.href, "push").then(() => bucket.focus());
  });
}
addEventListener("popstate", () => open(location.href, "keep"));

// The search page: the address is the state; an uploaded picture is kept in memory.

import { isPlain, nearest, problem, show } from "./fragments.js";

const results = document.getElementById("results");
const status = document.getElementById("status");
const ask = document.getElementById("ask");
const upload = document.getElementById("upload");
const pictures = new Map(); // number -> { file, preview }; history entries hold the number
let picture = null; // number of the picture that is searched now

const sheet = document.querySelector(".sheet");
const narrow = matchMedia("(max-width: 40rem)");

document.documentElement.classList.add("js");
showNumbers();
if (narrow.matches && results.querySelector(".query")) sheet.open = false;

/** The address for the values of the form. */
function address() {
  const params = new URLSearchParams();
  const { id, code, k, radius, rerank, posterior, probes } = ask.elements;
  if (picture === null && id.value.trim()) params.set("id", id.value.trim());
  else if (code.value) params.set("code", code.value);
  if (k.value !== k.dataset.default) params.set("k", k.value);
  if (radius.value !== radius.dataset.default) params.set("radius", radius.value);
  if (rerank.checked) params.set("rerank", "1");
  if (posterior?.checked) params.set("posterior", "1");
  if (probes?.checked) params.set("probes", "1");
  return `${ask.getAttribute("action")}?${params}`;
}

/** Fill in the form from an address. */
function readAddress(url) {
  const params = new URL(url, location.href).searchParams;
  const { id, code, k, radius, rerank, posterior, probes } = ask.elements;
  id.value = params.get("id") ?? "";
  code.value = params.get("code") ?? "";
  k.value = params.get("k") ?? k.dataset.default;
  radius.value = params.get("radius") ?? radius.dataset.default;
  rerank.checked = params.has("rerank");
  if (posterior) posterior.checked = params.has("posterior");
  if (probes) probes.checked = params.has("probes");
  showNumbers();
}

function showNumbers() {
  const { k, radius } = ask.elements;
  const bits = Number(radius.max);
  document.getElementById("radius-text").textContent = `${radius.value} of ${bits} bit${bits === 1 ? "" : "s"}`;
  document.getElementById("k-text").textContent = `${k.value} items`;
}

/** Search, and show the results; `how` is "push", "replace" or "keep" for the history. */
async function search(url, how) {
  const kept = picture === null ? null : pictures.get(picture);
  let body = null;
  if (kept) {
    body = new FormData();
    body.append("image", kept.file);
  }
  if (!kept && how === "push") history.pushState(null, "", url);
  if (!kept && how === "replace") history.replaceState(null, "", url);
  if (!(await show(results, url, body))) return;
  if (kept) settlePicture(kept, how);
  const summary = results.querySelector("[data-summary]");
  status.textContent = summary?.dataset.summary ?? "";
  const title = results.querySelector("[data-title]")?.dataset.title;
  if (title) document.title = `${title} · ${document.querySelector(".brand span").textContent}`;
  if (narrow.matches) sheet.open = false; // results first
  if (how === "push") {
    results.focus({ preventScroll: true });
    const top = results.getBoundingClientRect().top - 80;
    if (top < 0 || top > innerHeight * 0.6) scrollBy({ top, behavior: "instant" });
  }
}

/** A picture has no address, but its code has one. */
function settlePicture(kept, how) {
  const shown = results.querySelector("[data-preview]");
  if (!shown) return;
  shown.src = kept.preview;
  shown.hidden = false;
  ask.elements.code.value = results.querySelector("[data-code]").dataset.code;
  ask.elements.id.value = "";
  if (how === "push") history.pushState({ picture }, "", address());
  if (how === "replace") history.replaceState({ picture }, "", address());
}

/** Search with a file that was chosen, dropped or pasted. */
async function searchFile(file) {
  if (!file) return;
  if (file.type && !file.type.startsWith("image/")) {
    problem(results, `${file.name} is not a picture; choose a JPEG, PNG or WebP file, for instance.`);
    return;
  }
  picture = pictures.size;
  pictures.set(picture, { file, preview: await dataUrl(file) });
  ask.elements.id.value = ask.elements.code.value = "";
  search(address(), "push");
}

function dataUrl(file) {
  return new Promise((done) => {
    const reader = new FileReader();
    reader.onload = () => done(reader.result);
    reader.onerror = () => done("");
    reader.readAsDataURL(file);
  });
}

let waiting = 0;
ask.addEventListener("input", (event) => {
  if (event.target.name === "id") return;
  const { rerank, posterior } = ask.elements;
  if (event.target === rerank && posterior) posterior.checked = false; // one order at a time
  if (event.target === posterior) rerank.checked = false;
  showNumbers();
  clearTimeout(waiting);
  if (picture === null && !ask.elements.id.value.trim() && !ask.elements.code.value) {
    history.replaceState(null, "", address());
    refreshLinks();
    return;
  }
  waiting = setTimeout(() => search(address(), "replace"), 120);
});

/** Copy the options of the form into the links of samples. */
function refreshLinks() {
  for (const link of results.querySelectorAll("a[data-search]")) {
    const target = new URL(link.href);
    const now = new URL(address(), location.href).searchParams;
    for (const name of ["k", "radius", "rerank", "posterior", "probes"]) {
      if (now.has(name)) target.searchParams.set(name, now.get(name));
      else target.searchParams.delete(name);
    }
    link.href = target;
  }
}

ask.addEventListener("submit", (event) => {
  event.preventDefault();
  picture = null;
  ask.elements.code.value = "";
  search(address(), "push");
});

const lightbox = document.getElementById("lightbox");

/** Show an item above the page. */
async function showItem(url) {
  lightbox.replaceChildren();
  const inside = lightbox.appendChild(document.createElement("div"));
  lightbox.showModal();
  await show(inside, url);
  const close = document.createElement("button");
  close.className = "close";
  close.textContent = "Close";
  close.addEventListener("click", () => lightbox.close());
  lightbox.append(close);
  inside.querySelector("a.button")?.focus();
  document.dispatchEvent(new CustomEvent("item-shown", { detail: inside }));
}

lightbox.addEventListener("click", (event) => {
  if (event.target === lightbox) lightbox.close(); // beside its content
  const link = event.target.closest("a[data-search]");
  if (!link || !isPlain(event)) return;
  event.preventDefault();
  lightbox.close();
  picture = null;
  const target = new URL(link.href);
  const now = new URL(address(), location.href).searchParams;
  for (const name of ["k", "radius", "rerank", "posterior", "probes"]) if (now.has(name)) target.searchParams.set(name, now.get(name));
  readAddress(target);
  search(target, "push");
});

document.addEventListener("items-changed", () => search(picture === null ? location.href : address(), "keep"));

results.addEventListener("click", (event) => {
  const bar = event.target.closest("a[data-radius]");
  const link = event.target.closest("a[data-search]");
  const item = event.target.closest("a[data-item]");
  if (!isPlain(event) || !(bar || link || item)) return;
  event.preventDefault();
  if (item) {
    showItem(item.dataset.item);
    return;
  }
  if (bar) {
    ask.elements.radius.value = bar.dataset.radius;
    showNumbers();
    search(address(), "replace");
    return;
  }
  picture = null;
  readAddress(link.href);
  search(link.href, "push");
});

results.addEventListener("keydown", (event) => {
  const tile = event.target.closest(".tile");
  if (!tile || !event.key.startsWith("Arrow")) return;
  const next = nearest(event.key, tile, results.querySelectorAll(".tile"));
  if (!next) return;
  event.preventDefault();
  next.focus();
});

addEventListener("popstate", (event) => {
  const number = event.state?.picture;
  picture = pictures.has(number) ? number : null;
  readAddress(location.href);
  search(location.href, "keep");
});

if (upload) {
  const chosen = document.getElementById("image");
  chosen.addEventListener("change", () => {
    searchFile(chosen.files[0]);
    chosen.value = "";
  });
  let depth = 0;
  const holdsFiles = (event) => event.dataTransfer?.types.includes("Files");
  addEventListener("dragenter", (event) => {
    if (holdsFiles(event) && ++depth) document.body.classList.add("dropping");
  });
  addEventListener("dragleave", (event) => {
    if (holdsFiles(event) && --depth <= 0) document.body.classList.remove("dropping");
  });
  addEventListener("dragover", (event) => holdsFiles(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    if (!holdsFiles(event)) return;
    event.preventDefault();
    depth = 0;
    document.body.classList.remove("dropping");
    if (event.target.closest?.("#add-drop")) return; // those are added
    searchFile(event.dataTransfer.files[0]);
  });
  addEventListener("paste", (event) => {
    const file = [...(event.clipboardData?.files ?? [])].find((one) => one.type.startsWith("image/"));
    if (file) searchFile(file);
  });
}

// For holders of the token: add pictures by choosing or dropping them, label and remove items, undo.

import { send, sentence } from "./fragments.js";

const UNDO_SECONDS = 8;
const root = new URL(".", new URL("..", import.meta.url)).pathname;
const token = document.getElementById("token");
const toast = document.getElementById("toast");
const lightbox = document.getElementById("lightbox");
let pending = null; // what happens when the time to undo is over

token.value = sessionStorage.getItem("token") ?? "";
if (token.value) document.getElementById("write").open = true;
token.addEventListener("input", () => sessionStorage.setItem("token", token.value));

async function write(method, path, body = null, headers = {}) {
  headers.Authorization = `Bearer ${token.value}`;
  let status, text;
  if (body instanceof FormData) ({ status, text } = await send(root + path, method, body, headers));
  else {
    const answer = await fetch(root + path, { method, body, headers, keepalive: true }); // also while the page is left
    [status, text] = [answer.status, await answer.text()];
  }
  if (status >= 400) throw new Error(sentence(text, status));
  return text ? JSON.parse(text) : null;
}

const itemPath = (id) => `items/${encodeURIComponent(id)}`;
const remove = (id) => write("DELETE", itemPath(id));
const relabel = (id, label) =>
  write("PATCH", itemPath(id), JSON.stringify({ label: label || null }), { "Content-Type": "application/json" });
const changed = () => document.dispatchEvent(new CustomEvent("items-changed"));

/** Say what happened, with a way back; `after` happens when there is none any more. */
function say(text, undo = null, after = null) {
  pending?.();
  toast.replaceChildren(text);
  let timer = 0;
  const end = () => {
    clearTimeout(timer);
    if (pending === end) pending = null;
    toast.replaceChildren();
    after?.();
  };
  if (undo) {
    const button = toast.appendChild(document.createElement("button"));
    button.textContent = "Undo";
    button.addEventListener("click", () => {
      clearTimeout(timer);
      pending = null;
      toast.replaceChildren();
      attempt(undo);
    });
  }
  pending = end;
  timer = setTimeout(end, 1000 * UNDO_SECONDS);
}

async function attempt(work) {
  try {
    await work();
  } catch (error) {
    const lost = error.message === "no answer" || error instanceof TypeError;
    say(lost ? "The server does not answer; the change may or may not have been made." : error.message);
  }
}

async function add(files) {
  const body = new FormData();
  for (const file of files) body.append("image", file);
  const label = document.getElementById("new-label").value.trim();
  if (label) body.append("label", label);
  const { added, duplicates, failed } = await write("POST", "items", body);
  const parts = [`${added.length} added`];
  if (duplicates.length) parts.push(`${duplicates.length} already there`);
  if (failed.length) parts.push(`${failed.length} not usable (${failed[0].name}: ${failed[0].reason})`);
  const undo = async () => {
    for (const id of added) await remove(id);
    changed();
  };
  say(parts.join(", "), added.length ? undo : null);
  changed();
}

const chosen = document.getElementById("new-images");
chosen?.addEventListener("change", () => {
  const files = [...chosen.files];
  chosen.value = "";
  if (files.length) attempt(() => add(files));
});
document.getElementById("add-drop")?.addEventListener("drop", (event) => {
  event.preventDefault();
  const files = [...(event.dataTransfer?.files ?? [])];
  if (files.length) attempt(() => add(files));
});

document.addEventListener("item-shown", (event) => {
  const form = event.detail.querySelector("form.edit");
  if (!form || !token.value) return;
  form.hidden = false;
  const { id, label: before } = event.detail.querySelector(".item").dataset;
  form.addEventListener("submit", (submitted) => {
    submitted.preventDefault();
    attempt(async () => {
      await relabel(id, form.elements.label.value.trim());
      lightbox.close();
      const back = async () => {
        await relabel(id, before);
        changed();
      };
      say("The class was changed", back);
      changed();
    });
  });
  form.elements.remove.addEventListener("click", () => {
    lightbox.close();
    const tiles = [...document.querySelectorAll("#results .tile")].filter(
      (tile) => tile.dataset.item && new URL(tile.dataset.item, location.href).searchParams.get("id") === id,
    );
    for (const tile of tiles) tile.parentElement.hidden = true;
    const back = () => tiles.forEach((tile) => (tile.parentElement.hidden = false));
    const gone = () =>
      attempt(async () => {
        await remove(id);
        changed();
      });
    say(`Item ${id} will be removed`, back, gone);
  });
});
addEventListener("pagehide", () => pending?.());

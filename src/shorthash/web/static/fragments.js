// Request a part of a page, and show it.

const running = new WeakMap(); // place -> its request

/** The address that answers with a part only. */
export function partOf(url) {
  const address = new URL(url, location.href);
  address.hash = "";
  address.searchParams.set("part", "1");
  return address;
}

/** Fetch a part and show it in `place`; answers the shown element, or null if a later request replaced this one. */
export async function show(place, url, body = null) {
  running.get(place)?.abort();
  const request = new AbortController();
  running.set(place, request);
  place.setAttribute("aria-busy", "true");
  try {
    const answer = await send(partOf(url), body ? "POST" : "GET", body, {}, request.signal);
    const { kind, text } = answer;
    if (request.signal.aborted) return null;
    if (kind.startsWith("text/html")) place.innerHTML = text; // made by our own templates, which escape
    else problem(place, sentence(text, answer.status));
  } catch (error) {
    if (error.name === "AbortError") return null;
    problem(place, "The server does not answer; check that it is running, and try again.");
  }
  place.removeAttribute("aria-busy");
  return place;
}

/** Send a request; the upload of a body moves the bar. */
export function send(url, method, body = null, headers = {}, signal = null) {
  return new Promise((done, fail) => {
    const request = new XMLHttpRequest(); // fetch does not report how much was sent
    const bar = document.getElementById("sending");
    request.open(method, url);
    for (const [name, value] of Object.entries(headers)) request.setRequestHeader(name, value);
    if (body && bar) {
      request.upload.onprogress = (event) => {
        bar.hidden = false;
        if (event.lengthComputable) bar.value = event.loaded / event.total;
      };
    }
    const end = (act) => () => {
      if (bar) bar.hidden = true;
      act();
    };
    request.onload = end(() => done({ status: request.status, kind: request.getResponseHeader("content-type") ?? "", text: request.responseText }));
    request.onerror = end(() => fail(new Error("no answer")));
    request.onabort = end(() => fail(new DOMException("aborted", "AbortError")));
    signal?.addEventListener("abort", () => request.abort());
    request.send(body);
  });
}

/** Show one sentence about what went wrong. */
export function problem(place, text) {
  const box = document.createElement("p");
  box.className = "problem";
  box.setAttribute("role", "alert");
  box.dataset.summary = text;
  box.textContent = text;
  place.replaceChildren(box);
}

/** The message of an answer that is not a page. */
export function sentence(text, status) {
  try {
    const answer = JSON.parse(text);
    const detail = answer.detail ?? answer.error ?? answer.message;
    if (typeof detail === "string") return detail;
    if (typeof detail?.message === "string") return detail.message;
  } catch {
    // not JSON: show the status
  }
  return `The server refused this (status ${status}); try another picture.`;
}

/** Whether a click is for this page, not for a new tab. */
export function isPlain(event) {
  return event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
}

/** Arrow keys move between neighbours on the screen: to the nearest of `others` in the direction of the key. */
export function nearest(key, from, others) {
  const [dx, dy] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[key];
  const here = middle(from);
  let best = null, least = Infinity;
  for (const other of others) {
    if (other === from) continue;
    const target = middle(other);
    const along = (target.x - here.x) * dx + (target.y - here.y) * dy;
    const aside = Math.abs((target.x - here.x) * dy) + Math.abs((target.y - here.y) * dx);
    if (along <= 1) continue;
    const far = along + 3 * aside;
    if (far < least) [best, least] = [other, far];
  }
  return best;
}

function middle(element) {
  const box = element.getBoundingClientRect();
  return { x: box.x + box.width / 2, y: box.y + box.height / 2 };
}

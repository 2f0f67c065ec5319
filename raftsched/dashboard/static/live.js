// Keeps an open page current: at each message of its stream the page is fetched again, and what changed is replaced.
//
// Elements with an id and data-live are replaced, unless their reader is typing or has ticked something in them. Open
// details stay open, and the focus stays where it is.

const stream = document.body.dataset.stream;
const gone = document.getElementById("gone");
let source = null;
const seen = new Map([...document.querySelectorAll("[data-live][id]")].map((each) => [each.id, each.outerHTML]));
let fetching = false;
let again = false;
let signedOut = false;

function isInUse(element) {
  const active = document.activeElement;
  if (active && element.contains(active) && active.matches("input:not([type=checkbox]), select, textarea")) return true;
  return [...element.querySelectorAll("input[type=checkbox]")].some((box) => box.checked !== box.defaultChecked);
}

function keyOf(element) {
  if (!element || element === document.body) return null;
  if (element.id) return `#${CSS.escape(element.id)}`;
  const target = element.getAttribute("href");
  return target ? `${element.localName}[href="${CSS.escape(target)}"]` : null;
}

function replace(old, fresh) {
  const focused = old.contains(document.activeElement) ? keyOf(document.activeElement) : null;
  for (const details of old.querySelectorAll("details[id]")) {
    const twin = fresh.querySelector(`#${CSS.escape(details.id)}`);
    if (twin) twin.open = details.open;
  }
  const positions = [...old.querySelectorAll("[id][tabindex]")].map((each) => [
    each.id, each.scrollTop, "tail" in each.dataset && each.scrollTop + each.clientHeight >= each.scrollHeight - 8,
  ]);
  old.replaceWith(fresh);
  for (const [id, top, atEnd] of positions) {
    const twin = id && fresh.querySelector(`#${CSS.escape(id)}`);
    if (twin) twin.scrollTop = atEnd ? twin.scrollHeight : top;
  }
  if (focused) fresh.querySelector(focused)?.focus({ preventScroll: true });
}

async function refresh() {
  if (fetching) {
    again = true;
    return;
  }
  fetching = true;
  try {
    const reply = await fetch(location.href, { headers: { "Raftsched-Fragment": "1" } });
    if (reply.status === 401) {
      signedOut = true;
      location.reload();
      return;
    }
    if (!reply.ok && reply.status !== 404) {
      isGone(new Date());
      return;
    }
    if (gone) gone.hidden = true;
    const page = new DOMParser().parseFromString(await reply.text(), "text/html");
    let changed = false;
    for (const old of document.querySelectorAll("[data-live][id]")) {
      const fresh = page.getElementById(old.id);
      const text = fresh?.outerHTML;
      if (!fresh || text === seen.get(old.id) || isInUse(old)) continue;
      replace(old, document.adoptNode(fresh));
      seen.set(fresh.id, text);
      changed = true;
    }
    if (changed) document.dispatchEvent(new Event("raftsched:replaced"));
  } catch {
    // The stream notices that the node is gone, and connects again by itself.
  } finally {
    fetching = false;
    if (again) {
      again = false;
      refresh();
    }
  }
}

function isGone(since) {
  if (!gone || !gone.hidden) return;
  const time = document.getElementById("gone-since");
  time.dateTime = since.toISOString();
  time.textContent = `${since.toISOString().slice(0, 19).replace("T", " ")} UTC`;
  gone.hidden = false;
  document.dispatchEvent(new Event("raftsched:replaced"));
}

function open() {
  if (source || document.hidden || signedOut) return;
  source = new EventSource(stream);
  source.addEventListener("open", () => {
    if (gone && !gone.hidden) refresh();
    document.documentElement.dataset.stream = "open";
  });
  source.addEventListener("change", refresh);
  source.addEventListener("signed-out", () => location.reload());
  source.addEventListener("error", () => {
    isGone(new Date());
    if (source?.readyState === EventSource.CLOSED) {
      // It was refused, not cut off: the browser does not try again, so we do.
      close();
      setTimeout(open, 5000);
    }
  });
}

function close() {
  source?.close();
  source = null;
}

for (const log of document.querySelectorAll("[data-tail]")) log.scrollTop = log.scrollHeight;

// A hidden page needs no updates, and browsers allow few connections to one node.
document.addEventListener("visibilitychange", () => {
  if (document.hidden) close();
  else {
    open();
    refresh();
  }
});
addEventListener("pagehide", close);
open();

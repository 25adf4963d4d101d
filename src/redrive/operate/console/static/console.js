// What a page does beyond showing itself: it stays current, answers the keyboard, and copies. Every page works without it.
(function () {
  "use strict";
  const body = document.body;
  const badge = document.querySelector("[data-live-badge]");
  const word = document.querySelector("[data-live-word]");
  const toast = document.querySelector("[data-toast]");
  const STALE_MS = 12000;
  const GAP_MS = 1500;
  let stopped = false, heard = 0, refreshed = 0, waiting = false, state = "off";

  function show(next, words) {
    state = next;
    if (badge && badge.dataset.state !== next) { badge.dataset.state = next; word.textContent = words; }
  }

  // Live: the server says that something changed, and the regions of the page fetch themselves again.
  const region = () => document.querySelector("[data-region]");
  function busy() {
    const here = region();
    if (document.hidden || document.querySelector("dialog[open]")) return true;
    if (!here) return false;
    const chosen = document.getSelection();
    if (chosen && !chosen.isCollapsed && here.contains(chosen.anchorNode)) return true;
    const active = document.activeElement;
    if (active && here.contains(active) && active.matches("input:not([type=radio]):not([type=checkbox]), textarea, select")) return true;
    return Array.from(here.querySelectorAll("input, textarea")).some((one) =>
      one.type === "radio" || one.type === "checkbox" ? one.checked !== one.defaultChecked : one.type !== "hidden" && one.value !== one.defaultValue);
  }
  function refresh() {
    if (!waiting || stopped) return;
    if (busy()) { show("paused", "paused while you work"); return; }
    if (Date.now() - refreshed < GAP_MS) return;
    waiting = false;
    refreshed = Date.now();
    const offer = document.querySelector("[data-offer]");
    if (offer) offer.hidden = false;
    if (region() && window.htmx) window.htmx.trigger(body, "redrive:pulse");
    show("live", "live");
  }
  function listen() {
    if (!body.dataset.live || !window.EventSource) return;
    const source = new EventSource(body.dataset.live);
    source.onopen = function () { heard = Date.now(); if (!stopped) show("live", "live"); };
    source.onerror = function () { if (!stopped) show("reconnecting", "reconnecting"); };
    for (const kind of ["pulse", "beat", "lost"]) {
      source.addEventListener(kind, function () {
        heard = Date.now();
        if (stopped) return;
        if (kind === "lost") { show("lost", "database does not answer"); return; }
        if (state !== "paused" || !busy()) show("live", "live");
        if (kind === "pulse") { waiting = true; refresh(); }
      });
    }
    setInterval(function () {
      if (stopped) return;
      if (heard && Date.now() - heard > STALE_MS) show("reconnecting", "reconnecting");
      refresh();
      if (document.querySelector("[data-running]") && Date.now() - refreshed > GAP_MS) { waiting = true; refresh(); }
    }, 500);
    addEventListener("pagehide", () => source.close());
    addEventListener("pageshow", (event) => { if (event.persisted) location.reload(); });
  }
  function toggleLive() {
    stopped = !stopped;
    if (stopped) show("paused", "paused"); else { show("live", "live"); waiting = true; refresh(); }
  }

  // What was open stays open when a region is replaced.
  let opened = [];
  body.addEventListener("htmx:beforeSwap", () => { opened = Array.from(document.querySelectorAll("details[open][id]"), (one) => one.id); });
  body.addEventListener("htmx:afterSettle", () => { opened.forEach((id) => { const one = document.getElementById(id); if (one) one.open = true; }); times(); });

  // Ages go on by themselves; the offset is that of this machine's clock to the database's.
  const first = document.querySelector(".health-at time[datetime]");
  const offset = first ? Date.parse(first.getAttribute("datetime")) - Date.now() : 0;
  function span(seconds) {
    for (const [unit, size] of [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]])
      if (seconds >= size) return Math.floor(seconds / size) + " " + unit;
    return "0 s";
  }
  function times() {
    document.querySelectorAll("time[data-ago]").forEach((one) => {
      const seconds = Math.max(0, (Date.now() + offset - Date.parse(one.getAttribute("datetime"))) / 1000);
      if (Number.isFinite(seconds)) one.textContent = span(seconds) + " ago";
      if (!one.dataset.local) { one.dataset.local = "1"; one.title += " · " + new Date(one.getAttribute("datetime")).toLocaleString(); }
    });
  }

  function say(text) {
    toast.textContent = text;
    toast.hidden = false;
    setTimeout(() => { toast.hidden = true; }, 1600);
  }
  async function copy(text) {
    try { await navigator.clipboard.writeText(text); }
    catch (_) {  // not a secure origin
      const area = document.createElement("textarea");
      area.value = text;
      body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    say("Copied");
  }
  function theme() {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.setItem("redrive-theme", root.dataset.theme); } catch (_) { /* for this page only */ }
  }
  document.addEventListener("click", function (event) {
    const target = event.target.closest("[data-copy], [data-theme-toggle], [data-help], [data-live-badge]");
    if (!target) return;
    if (target.dataset.copy !== undefined) copy(target.dataset.copy);
    else if (target.dataset.themeToggle !== undefined) theme();
    else if (target.dataset.help !== undefined) document.getElementById("help").showModal();
    else toggleLive();
  });
  document.addEventListener("change", function (event) {
    const button = document.querySelector("[data-numbers]");
    if (button && event.target.name === "scope") button.textContent = event.target.value === "one" ? button.dataset.one : button.dataset.all;
  });
  document.addEventListener("submit", function (event) {
    event.target.querySelectorAll("button:not([type=button])").forEach((one) => setTimeout(() => { one.disabled = true; }, 0));
  });

  // Keyboard.
  let going = 0;
  function move(step) {
    const links = Array.from(document.querySelectorAll(".row-link"));
    if (!links.length) return;
    const at = links.indexOf(document.activeElement);
    links[Math.min(links.length - 1, Math.max(0, at + step))].focus();
  }
  document.addEventListener("keydown", function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) {
      if (event.key === "Escape" && event.target.closest("input, textarea")) event.target.blur();
      return;
    }
    const key = event.key;
    if (Date.now() - going < 1200) {
      going = 0;
      const link = document.querySelector('[data-go="' + CSS.escape(key) + '"]');
      if (link) { event.preventDefault(); link.click(); return; }
    }
    if (key === "/") { event.preventDefault(); document.getElementById("find").focus(); }
    else if (key === "?") document.getElementById("help").showModal();
    else if (key === "g") going = Date.now();
    else if (key === "j") move(1);
    else if (key === "k") move(-1);
    else if (key === ".") toggleLive();
    else if (key === "t") theme();
  });

  times();
  setInterval(times, 10000);
  listen();
})();

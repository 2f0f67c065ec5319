// Shows each <time> as its reader prefers: UTC as the server wrote it, local, or relative to now.

const how = document.documentElement.dataset.times;
const local = new Intl.DateTimeFormat(undefined, {
  year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
  hourCycle: "h23", timeZoneName: "short",
});
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const units = [["day", 86400], ["hour", 3600], ["minute", 60], ["second", 1]];

function ago(moment) {
  const seconds = (moment - Date.now()) / 1000;
  const [unit, size] = units.find(([, size]) => Math.abs(seconds) >= size) ?? units.at(-1);
  return relative.format(Math.round(seconds / size), unit);
}

function show(root) {
  for (const each of root.querySelectorAll("time[datetime]")) {
    const moment = new Date(each.dateTime);
    if (Number.isNaN(moment.valueOf())) continue;
    if (how === "local") each.textContent = local.format(moment);
    if (how === "relative") each.textContent = ago(moment);
  }
}

if (how !== "utc") {
  show(document);
  document.addEventListener("raftsched:replaced", () => show(document));
}
if (how === "relative") setInterval(() => show(document), 5000);

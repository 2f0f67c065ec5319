// Makes forms quicker: preferences apply at once, one box ticks all of a list, Escape closes menus, "/" searches.

for (const form of document.querySelectorAll("form[data-preferences]")) {
  form.querySelector("button").hidden = true;
  form.addEventListener("change", () => form.requestSubmit());
}

document.addEventListener("change", (event) => {
  const all = event.target.closest?.("input[data-all]");
  if (!all) return;
  for (const box of document.querySelectorAll(`input[type=checkbox][name="${all.dataset.all}"]`)) box.checked = all.checked;
});

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest?.("input, select, textarea");
  if (event.key === "Escape") {
    for (const menu of document.querySelectorAll("details.menu[open]")) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  }
  if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    const search = document.querySelector(".search input");
    if (search) {
      event.preventDefault();
      search.focus();
    }
  }
});

// Copies the text of a field, from a button that names it. Without scripts the field itself can be selected.

for (const button of document.querySelectorAll("button[data-copy]")) {
  const field = document.getElementById(button.dataset.copy);
  field.addEventListener("focus", () => field.select());
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(field.value);
    } catch {
      field.select();  // the browser allows no clipboard, as over plain http
      document.execCommand("copy");
    }
    button.textContent = "Copied";
  });
}

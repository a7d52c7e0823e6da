"use strict";
// Tables that can be copied, and charts of which one is shown at a time. Loads nothing.
(function () {
  function pick(chooser, key) {
    const select = document.getElementById(chooser);
    if (!select || !Array.from(select.options).some((option) => option.value === key)) return;
    select.value = key;
    chosen(select);
    select.scrollIntoView({ block: "nearest" });
    select.focus({ preventScroll: true });
  }

  function chosen(select) {
    for (const part of document.querySelectorAll('[data-of="' + select.id + '"]')) part.hidden = part.dataset.key !== select.value;
    document.dispatchEvent(new CustomEvent("chosen", { detail: select.id }));
  }

  async function copy(button) {
    const table = document.getElementById(button.dataset.table);
    const rows = Array.from(table.rows, (row) => Array.from(row.cells, (cell) => cell.textContent).join("\t"));
    const say = button.nextElementSibling;
    try {
      await navigator.clipboard.writeText(rows.join("\n") + "\n");
    } catch (refused) {
      // Without leave for the clipboard: the selection, as by hand.
      getSelection().selectAllChildren(table);
      document.execCommand("copy");
    }
    say.textContent = "Copied: " + (rows.length - 1) + " rows.";
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.dataset.table) copy(button);
    if (button.dataset.chooser) pick(button.dataset.chooser, button.dataset.key);
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches("select[data-choice]")) chosen(event.target);
  });
  document.addEventListener("pick", (event) => pick(event.detail.chooser, event.detail.key));
  document.documentElement.dataset.ready = "yes";
})();

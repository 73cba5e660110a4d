// A click on a column head sorts the table by it: numbers by their first number, largest first; words by the alphabet.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const words = head.classList.contains("text");
      const before = head.getAttribute("aria-sort");
      const down = before === null ? !words : before === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => {
        const text = row.cells[column].textContent.trim();
        if (words) return text;
        const found = text.match(/[-+]?\d*\.?\d+(e[-+]?\d+)?/i);
        return found ? Number(found[0]) : null;
      };
      const rows = [...table.tBodies[0].rows].map((row) => [key(row), row]);
      rows.sort(([a], [b]) => {
        if (a === null || b === null) return (a === null) - (b === null);
        const order = words ? a.localeCompare(b, undefined, { numeric: true }) : a - b;
        return down ? -order : order;
      });
      table.tBodies[0].append(...rows.map(([, row]) => row));
    });
  });
}

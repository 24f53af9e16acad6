// A table that is sorted by a click on a heading, or by a key there.

class SortedTable {
  // heads: [text, meaning]; rows: {cells: ["text", or ["text", number]], …}. Words stand left, numbers right.
  constructor(heads, rows, decorate) {
    this.rows = rows;
    this.heads = heads.map(([text, meaning], column) => {
      const button = element("button", {type: "button", title: meaning || "sort"}, text);
      button.addEventListener("click", () => this.sort(column));
      const words = rows.every((row) => typeof row.cells[column] === "string");
      return element("th", {scope: "col", class: words ? "left" : ""}, button);
    });
    this.body = element("tbody");
    for (const row of rows) {
      row.line = element("tr");
      row.cells.forEach((cell, column) => {
        const words = typeof cell === "string" ? cell : cell[0];
        row.line.append(element("td", {class: this.heads[column].className}, words));
      });
      if (decorate) decorate(row);
    }
    this.table = element("table", {}, element("thead", {}, element("tr", {}, ...this.heads)), this.body);
    this.body.append(...rows.map((row) => row.line));
  }
  sort(column) {
    const head = this.heads[column];
    const falling = head.getAttribute("aria-sort") === "ascending";
    for (const other of this.heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", falling ? "descending" : "ascending");
    const value = (row) => typeof row.cells[column] === "string" ? row.cells[column] : row.cells[column][1];
    const compare = (a, b) => {
      const x = value(a), y = value(b);
      if (typeof x === "number" && typeof y === "number") return x - y;
      if (typeof x !== typeof y) return typeof x === "number" ? -1 : 1;
      return x.localeCompare(y, "en", {numeric: true});
    };
    const sorted = [...this.rows].sort((a, b) => falling ? compare(b, a) : compare(a, b));
    this.body.append(...sorted.map((row) => row.line));
  }
}

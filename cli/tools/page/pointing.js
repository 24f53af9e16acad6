// Pointing: from the mask, the strips, the ranks and the timelines to each other, and the words about it.

Object.assign(PageView.prototype, {
  point(selection) {
    const now = this.pointed;
    const parts = ["kind", "rank", "tile", "segment", "view", "axis", "lane", "at"];
    if (now === selection || now && selection && parts.every((part) => now[part] === selection[part])) return;
    this.pointed = selection;
    if (!this.pinned) this.mark();
  },
  pin(selection) {
    this.pinned = selection;
    this.mark();
    this.writeAddress();
  },
  mark() {
    const selection = this.pinned || this.pointed, pass = this.pass();
    const rank = selection ? selection.rank : -1;
    const tile = selection && selection.kind === "tile" ? selection.tile : -1;
    this.mask.mark(rank, tile);
    for (const strip of this.strips) strip.draw(rank);
    [...byId("chips").children].forEach((chip, i) => chip.setAttribute("aria-pressed", String(i === rank)));
    this.rankLines.forEach((line, i) => line.classList.toggle("marked", i === rank));
    const found = tile >= 0 && !pass.tiles[tile].cell ? pass.messagesOf(pass.tiles[tile]) : [];
    for (const view of this.views) {
      let steps = [], messages = [];
      if (selection && selection.kind === "step" && selection.view.of.join() === view.of.join()) {
        steps = [[rank, selection.lane, selection.at]];
        messages = view.pass.data.steps ? view.pass.sentIn(rank, selection.lane, selection.at) : [];
      } else if (tile >= 0 && view.pass === pass && !pass.tiles[tile].cell) {
        steps = [[rank, 0, pass.tiles[tile].at]];
        messages = found.map((each) => each.message);
      }
      view.mark(rank, steps, messages);
    }
    byId("details").classList.toggle("empty", !selection);
    byId("details").replaceChildren(...this.words(selection, found));
  },
  words(selection, found) {
    if (!selection) {
      return [element("h3", {}, "Point at something"),
              element("p", {}, "A tile shows who computes it, when, and which messages it needs; a rank its tiles, " +
                "bytes and idle time. A click keeps it, Escape releases it.")];
    }
    if (selection.kind === "tile") return this.tileWords(this.pass().tiles[selection.tile], found);
    if (selection.kind === "step") return this.stepWords(selection);
    if (selection.kind === "segment") {
      const {name, segment, axis} = selection;
      return [element("p", {}, `${name} segment ${segment}: ${axis.words(segment)}`),
              ...this.rankWords(selection.rank)];
    }
    return this.rankWords(selection.rank);
  },
  rankWords(rank) {
    const pass = this.pass(), {totals} = pass.data;
    const owned = pass.queries.segments.filter((segment) => segment.owner === rank);
    const tokens = owned.reduce((sum, segment) => sum + segment.count, 0);
    const share = totals.pairs[rank] / (pass.pairs || 1);
    const list = [["owns", `${counted(tokens, "token")} in ${counted(owned.length, "segment")}`],
      ["computes", `${counted(totals.tiles[rank], "tile")}, ${percent(share)} of all pairs ` +
        `(${(share * pass.ranks).toFixed(2)} of the mean)`],
      ["sends", `${bytesInWords(totals.sent_near[rank])} near, ${bytesInWords(totals.sent_far[rank])} far`],
      ["receives", bytesInWords(totals.received[rank])], ["memory", bytesInWords(totals.memory[rank])]];
    for (const view of this.views) {
      const {timeline} = view;
      if (rank >= timeline.busy.length) continue;
      const idle = Math.max(0, 1 - timeline.busy[rank]);
      list.push(["idle", `${secondsInWords(idle * timeline.seconds)} (${percent(idle)}): ${view.name}`]);
    }
    return [element("h3", {}, `rank ${rank}`), definitions(list)];
  },
  tileWords(tile, found) {
    const pass = this.pass();
    if (tile.cell) {
      return [element("h3", {}, `cell of rank ${tile.rank}`),
              element("p", {}, `Queries from segment ${tile.q} to ${tile.lastQ}, keys from ${tile.k} to ` +
                `${tile.lastK}, head group ${tile.group}; rank ${tile.rank} computes most of its pairs.`),
              ...this.rankWords(tile.rank)];
    }
    const q = pass.queries.segments[tile.q], k = pass.keys.segments[tile.k];
    const list = [["computed by", `rank ${tile.rank} in step ${tile.number}`],
      ["queries", `segment ${tile.q} of rank ${q.owner}: ${pass.queries.words(tile.q)}`],
      ["keys", `segment ${tile.k} of rank ${k.owner}: ${pass.keys.words(tile.k)}`],
      ["visible", `${counted(tile.pairs, "pair")}, ${percent(tile.pairs / tile.all)} of the tile`]];
    for (const timeline of pass.timelines) {
      const span = timeline.spans[tile.rank][0][tile.at];
      if (span) list.push([timeline.title, `its step: ${timeline.words(span)}`]);
    }
    const lines = found.map(({message, value}) => element("li", {}, `${pass.valueWords(value)}: rank ` +
      `${message.from} to ${message.to}, step ${message.number}, ${LANES[message.lane]}, ` +
      bytesInWords(message.bytes) +
      (message.values.length > 1 ? `, with ${counted(message.values.length - 1, "other value")}` : "")));
    return [element("h3", {}, `tile q${tile.q}·k${tile.k}` + (pass.groups > 1 ? `, head group ${tile.group}` : "")),
            definitions(list), element("p", {}, lines.length === 0 ? "It needs no message." : "Its messages:"),
            element("ul", {}, ...lines)];
  },
  stepWords({view, rank, lane, at}) {
    const {pass, timeline} = view, span = timeline.spans[rank][lane][at];
    const number = pass.data.steps ? `, step ${pass.data.steps[rank][lane][at][0]}` : "";
    const head = element("h3", {}, `rank ${rank}, ${LANES[lane]}${number}`);
    const list = [["time", timeline.words(span)]];
    if (lane === 0) {
      if (pass.stepTiles) list.push(["computes", counted(pass.stepTiles[rank][at].length, "tile")]);
      return [head, definitions(list), ...this.rankWords(rank)];
    }
    const sent = pass.data.steps ? pass.sentIn(rank, lane, at) : [];
    const lines = sent.map((message) => element("li", {}, `to rank ${message.to}: ${bytesInWords(message.bytes)}: ` +
      message.values.slice(0, 8).map((value) => pass.valueWords(value)).join(", ") +
      (message.values.length > 8 ? ` and ${message.values.length - 8} more` : "")));
    const summary = pass.data.steps ? `Sends ${counted(sent.length, "message")}.` : "";
    return [head, definitions(list), element("p", {}, summary), element("ul", {}, ...lines)];
  },
  listen() {
    for (const id of ["schedule", "pass", "group"]) {
      byId(id).addEventListener("change", () => {
        const {schedule, pass, group} = {...this.chosen, [id]: Number(byId(id).value)};
        this.choose(schedule, pass, group);
      });
    }
    byId("choices").addEventListener("submit", (event) => event.preventDefault());
    const redraw = () => this.draw();
    let waiting = 0;
    window.addEventListener("resize", () => {
      cancelAnimationFrame(waiting);
      waiting = requestAnimationFrame(redraw);
    });
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.show());
    window.addEventListener("hashchange", () => {
      this.readAddress();
      this.show();
    });
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      this.pointed = null;
      this.pin(null);
    });
    // Where the words would be out of sight, they float.
    new IntersectionObserver(([place]) => document.body.classList.toggle("below", !place.isIntersecting))
      .observe(byId("details-place"));
    this.listenToMask();
  },
  zoom(factor, x, y) {
    if (factor === 0) this.mask.whole(); else this.mask.zoom(factor, x, y);
    this.mask.draw(this.pass(), this.chosen.group);
    this.mark();
  },
  listenToMask() {
    const canvas = byId("mask-marks");
    byId("closer").addEventListener("click", () => this.zoom(2));
    byId("farther").addEventListener("click", () => this.zoom(0.5));
    byId("whole").addEventListener("click", () => this.zoom(0));
    const selection = (index) => index < 0 ? null : {kind: "tile", rank: this.pass().tiles[index].rank, tile: index};
    let held = null, moved = false;
    canvas.addEventListener("mousedown", (event) => {
      held = [event.offsetX, event.offsetY];
      moved = false;
    });
    window.addEventListener("mouseup", () => { held = null; });
    canvas.addEventListener("mousemove", (event) => {
      if (held && Math.hypot(event.offsetX - held[0], event.offsetY - held[1]) > 4) {
        moved = true;
        const {width, height} = this.mask.plot;
        this.mask.move((held[0] - event.offsetX) / width, (held[1] - event.offsetY) / height);
        held = [event.offsetX, event.offsetY];
        this.zoom(1);
      } else if (!held) {
        this.point(selection(this.mask.tileAt(event.offsetX, event.offsetY)));
      }
    });
    canvas.addEventListener("mouseleave", () => this.point(null));
    canvas.addEventListener("click", (event) => {
      if (!moved) this.pin(selection(this.mask.tileAt(event.offsetX, event.offsetY)));
    });
    canvas.addEventListener("dblclick", (event) => {
      this.zoom(event.shiftKey ? 0.5 : 2, ...this.mask.place(event.offsetX, event.offsetY));
    });
    const ways = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};
    canvas.addEventListener("keydown", (event) => {
      const zooms = {"+": 2, "-": 0.5, "0": 0};
      if (event.key in zooms) this.zoom(zooms[event.key]);
      if (!(event.key in ways)) return;
      event.preventDefault();
      const now = this.pinned || this.pointed;
      const from = now && now.kind === "tile" ? now.tile : this.pass().tiles.indexOf(this.mask.drawn[0]);
      if (from >= 0) this.pin(selection(now && now.kind === "tile" ? this.mask.next(from, ...ways[event.key]) : from));
    });
  },
  listenTo(view) {
    const selection = (found) => {
      if (!found) return null;
      if (found.tile >= 0 && view.pass === this.pass()) return {kind: "tile", rank: found.rank, tile: found.tile};
      return found.at < 0 ? {kind: "rank", rank: found.rank} : {kind: "step", view, ...found};
    };
    const at = (event) => selection(view.find(event.offsetX, event.offsetY));
    view.canvas.addEventListener("mousemove", (event) => this.point(at(event)));
    view.canvas.addEventListener("mouseleave", () => this.point(null));
    view.canvas.addEventListener("click", (event) => {
      const found = at(event), [schedule, pass] = view.of;
      if (schedule !== this.chosen.schedule || pass !== this.chosen.pass) {
        this.choose(schedule, pass, this.chosen.group);
        if (found) this.pin({kind: "rank", rank: found.rank});
      } else {
        if (found && found.kind === "tile" && this.pass().tiles[found.tile].group !== this.chosen.group) {
          this.choose(schedule, pass, this.pass().tiles[found.tile].group);
        }
        this.pin(found);
      }
    });
    view.canvas.addEventListener("keydown", (event) => {
      const by = {ArrowUp: -1, ArrowDown: 1}[event.key];
      if (by === undefined) return;
      event.preventDefault();
      const now = this.pinned || this.pointed;
      const rank = now ? (now.rank + by + view.pass.ranks) % view.pass.ranks : 0;
      this.pin({kind: "rank", rank});
    });
  },
});

function definitions(list) {
  return element("dl", {}, ...list.flatMap(([name, words]) => [element("dt", {}, name), element("dd", {}, words)]));
}

// What goes wrong is said on the page.
window.addEventListener("error", (event) => {
  document.body.dataset.error = event.message;
  document.body.prepend(element("p", {}, `This page could not be drawn: ${event.message}`));
});
new PageView(JSON.parse(byId("data").textContent));

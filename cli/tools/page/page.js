// The page: what is chosen, what is pointed at, and what everything shows of it.

class PageView {
  constructor(data) {
    this.data = data;
    this.passes = new Map();
    this.chosen = {schedule: 0, pass: 0, group: 0};
    this.pointed = this.pinned = null;
    this.mask = new MaskView(byId("mask-tiles"), byId("mask-marks"));
    byId("title").textContent = document.title = data.title;
    byId("coarser").textContent = "Drawn in cells and joined steps, without messages, because the page would be too " +
      `large: ${data.coarser.join(", ")}.`;
    byId("coarser").hidden = data.coarser.length === 0;
    this.fillTable();
    this.readAddress();
    this.listen();
    this.show();
  }
  pass(schedule = this.chosen.schedule, pass = this.chosen.pass) {
    const key = `${schedule} ${pass}`;
    if (!this.passes.has(key)) {
      const {passes, ranks} = this.data.schedules[schedule];
      this.passes.set(key, new Pass(passes[pass], ranks));
    }
    return this.passes.get(key);
  }
  // #schedule=0&pass=backward&group=1&rank=3 or &tile=5.2, which whoever writes down a link may give.
  readAddress() {
    const asked = new URLSearchParams(location.hash.slice(1));
    const within = (name, count) => Math.min(count - 1, Math.max(0, parseInt(asked.get(name), 10) || 0));
    this.chosen.schedule = within("schedule", this.data.schedules.length);
    const {passes, ranks} = this.data.schedules[this.chosen.schedule];
    this.chosen.pass = Math.max(0, passes.findIndex((each) => each.pass === asked.get("pass")));
    const pass = this.pass();
    this.chosen.group = within("group", pass.groups);
    this.pinned = null;
    const [q, k] = (asked.get("tile") || "").split(".").map(Number);
    const tile = asked.has("tile") ? pass.tileAt(this.chosen.group, q, k) : -1;
    if (tile >= 0) this.pinned = {kind: "tile", rank: pass.tiles[tile].rank, tile};
    else if (asked.has("rank")) this.pinned = {kind: "rank", rank: within("rank", ranks)};
  }
  writeAddress() {
    const {schedule, pass, group} = this.chosen;
    const parts = [`schedule=${schedule}`, `pass=${this.pass().data.pass}`, `group=${group}`];
    if (this.pinned && this.pinned.kind === "tile") {
      const tile = this.pass().tiles[this.pinned.tile];
      parts.push(`tile=${tile.q}.${tile.k}`);
      parts[2] = `group=${tile.group}`;
    } else if (this.pinned) {
      parts.push(`rank=${this.pinned.rank}`);
    }
    const address = `#${parts.join("&")}`;
    if (address !== location.hash) history.replaceState(null, "", address);
  }
  choose(schedule, pass, group) {
    const other = this.data.schedules[schedule].passes;
    this.chosen = {schedule, pass: Math.min(pass, other.length - 1), group: 0};
    this.chosen.group = Math.min(group, this.pass().groups - 1);
    this.pointed = this.pinned = null;
    this.mask.whole();
    this.show();
    this.writeAddress();
  }
  // Draws everything anew.
  show() {
    const pass = this.pass(), {problem, counts} = pass.data;
    this.fillChoices();
    const sizes = problem.seq === problem.seq_kv ? `${tokensInWords(problem.seq)} tokens`
      : `${tokensInWords(problem.seq)} queries, ${tokensInWords(problem.seq_kv)} keys`;
    byId("problem").textContent = `${pass.data.name} ${pass.data.pass}, ${pass.data.mode}, ` +
      `${counted(pass.ranks, "rank")}, ${sizes}, mask ${problem.mask}, ${problem.heads}/${problem.kv_heads} heads of ` +
      `${problem.head_dim}, ${problem.dtype}` + (problem.batch > 1 ? `, batch ${problem.batch}` : "");
    byId("counts").textContent = `${counted(counts.tiles, "tile")}, ${counted(counts.messages, "message")} of ` +
      `${counted(counts.values, "value")}, ${counted(counts.steps, "step")}`;
    for (const row of this.data.table.rows) {
      row.line.classList.toggle("chosen", row.schedule === this.chosen.schedule && row.pass === pass.data.pass);
    }
    this.fillChips();
    this.fillStrips();
    this.fillRanks();
    this.fillTimelines();
    this.draw();
  }
  // Draws what depends on the window's size.
  draw() {
    const pass = this.pass();
    const drawn = this.mask.draw(pass, this.chosen.group);
    byId("mask-marks").setAttribute("aria-label", `The mask of head group ${this.chosen.group}: ` +
      `${counted(drawn, pass.data.cells ? "cell" : "tile")} of ${pass.ranks} ranks. Arrow keys go from tile to tile, ` +
      "Enter keeps one, Escape releases it.");
    for (const strip of this.strips) strip.draw();
    let spans = 0;
    for (const view of this.views) spans += view.draw();
    Object.assign(document.body.dataset, {tiles: pass.data.counts.tiles, drawn, spans, ready: "yes"});
    this.mark();
  }
  fillChoices() {
    const fill = (id, names, chosen) => {
      const select = byId(id);
      select.replaceChildren(...names.map((name, i) => element("option", {value: i}, name)));
      select.value = chosen;
      select.parentElement.hidden = names.length < 2;
    };
    const {schedule, pass, group} = this.chosen;
    const {schedules} = this.data;
    const several = new Set(schedules.map((each) => each.ranks)).size > 1;
    fill("schedule", schedules.map((each) => several ? `${each.name} on ${each.ranks} ranks` : each.name), schedule);
    fill("pass", schedules[schedule].passes.map((each) => each.pass), pass);
    const heads = this.pass().data.groups;
    fill("group", heads.map(([q0, count], i) => `${i} (heads ${q0} to ${q0 + count - 1})`), group);
  }
  fillChips() {
    const pass = this.pass();
    byId("chips").replaceChildren(...pass.colours.map((colour, rank) => {
      const chip = element("button", {type: "button", "aria-pressed": "false", title: `rank ${rank}`}, String(rank));
      chip.style.background = colour;
      this.follow(chip, {kind: "rank", rank});
      return chip;
    }));
  }
  // What an element does while it is pointed at, and when it is clicked.
  follow(target, selection) {
    target.addEventListener("mouseenter", () => this.point(selection));
    target.addEventListener("mouseleave", () => this.point(null));
    target.addEventListener("focus", () => this.point(selection));
    target.addEventListener("blur", () => this.point(null));
    target.addEventListener("click", () => this.pin(selection));
  }
  fillStrips() {
    const pass = this.pass();
    const axes = pass.data.keys === null ? [["tokens", pass.queries]]
      : [["queries", pass.queries], ["keys", pass.keys]];
    this.strips = axes.map(([name, axis]) => new StripView(name, axis, pass, this));
    byId("strips").replaceChildren(...this.strips.map((strip) => strip.canvas));
  }
  fillRanks() {
    const pass = this.pass(), {totals} = pass.data;
    const heads = [["rank", ""], ["tokens", "queries that the rank owns"], ["tiles", "tiles that it computes"],
      ["pairs", "visible pairs, as a share of all"], ["sent near", "bytes to ranks of its node"],
      ["sent far", "bytes to other nodes"], ["received", "bytes"], ["memory", "bytes of its buffers in this pass"],
      ...pass.timelines.map((timeline) => [`idle, ${timeline.title}`, "share of the time without computing"])];
    const owned = Array(pass.ranks).fill(0);
    for (const segment of pass.queries.segments) owned[segment.owner] += segment.count;
    const bytes = (number) => [bytesInWords(number), number];
    const rows = pass.colours.map((colour, rank) => ({rank, colour, cells: [
      [String(rank), rank], [owned[rank].toLocaleString("en"), owned[rank]],
      [totals.tiles[rank].toLocaleString("en"), totals.tiles[rank]],
      [percent(totals.pairs[rank] / (pass.pairs || 1)), totals.pairs[rank]], bytes(totals.sent_near[rank]),
      bytes(totals.sent_far[rank]), bytes(totals.received[rank]), bytes(totals.memory[rank]),
      ...pass.timelines.map(({busy}) => [percent(Math.max(0, 1 - busy[rank])), 1 - busy[rank]])]}));
    const table = new SortedTable(heads, rows, (row) => {
      const mark = element("i");
      mark.style.background = row.colour;
      row.line.firstChild.prepend(mark);
      this.follow(row.line, {kind: "rank", rank: row.rank});
    });
    this.rankLines = rows.map((row) => row.line);
    byId("ranks").replaceChildren(table.table);
  }
  fillTable() {
    const {heads, rows} = this.data.table;
    byId("rows-section").hidden = rows.length === 0;
    if (rows.length === 0) return;
    const table = new SortedTable(heads, rows, (row) => {
      if (row.schedule === null) return;
      row.line.className = "opens";
      const name = row.line.firstChild.textContent;
      const open = element("button", {type: "button", title: "show its mask, layout and time"}, name);
      row.line.firstChild.replaceChildren(open);
      row.line.addEventListener("click", () => {
        const passes = this.data.schedules[row.schedule].passes;
        this.choose(row.schedule, Math.max(0, passes.findIndex((each) => each.pass === row.pass)), this.chosen.group);
      });
    });
    byId("undrawn").hidden = rows.every((row) => row.schedule !== null);
    byId("rows").replaceChildren(table.table);
  }
  // Timelines that can be compared: of several schedules those of one pass and as many ranks, of one schedule all.
  fillTimelines() {
    const {schedule, pass} = this.chosen, {schedules} = this.data;
    const shown = [];
    schedules.forEach((other, i) => {
      const alike = JSON.stringify(other.passes[0].problem) === JSON.stringify(schedules[schedule].passes[0].problem);
      if (i !== schedule && (other.ranks !== schedules[schedule].ranks || !alike)) return;
      other.passes.forEach((_, j) => {
        if (schedules.length === 1 || j === pass) shown.push([i, j]);
      });
    });
    // One scale for all of a pass, but for those that would leave the others nothing of the width.
    const scales = new Map();
    for (const [i, j] of shown) {
      const longest = 3 * Math.max(...this.pass(schedule, j).timelines.map((timeline) => timeline.seconds));
      for (const {seconds} of this.pass(i, j).timelines) {
        if (seconds <= longest) scales.set(j, Math.max(scales.get(j) || 0, seconds));
      }
    }
    this.views = shown.flatMap(([i, j]) => this.pass(i, j).timelines.map((timeline) => {
      const view = new TimelineView(schedules[i].name, timeline, Math.max(scales.get(j), timeline.seconds));
      if (timeline.seconds > scales.get(j)) view.caption.append(" (on a scale of its own)");
      view.of = [i, j];
      view.figure.classList.toggle("shown", i === schedule && j === pass && shown.length > 1);
      return view;
    }));
    byId("timelines").replaceChildren(...this.views.map((view) => view.figure));
    for (const view of this.views) this.listenTo(view);
    const entry = (colour, words) => {
      const mark = element("i");
      mark.style.background = colour;
      return element("span", {}, mark, words);
    };
    const colour = this.pass().colours[0], entries = [];
    if (this.views.some((view) => view.pass.data.steps)) {
      entries.push(entry(colour, "tile, in the colour of the rank that owns its keys; top edge: its queries are " +
                         "another rank's"),
                   entry(themeColour("merge"), "merges"));
    }
    if (this.views.some((view) => view.pass.data.cells)) {
      entries.push(entry(colour, "computing, without details: in the rank's own colour"));
    }
    byId("legend").replaceChildren(...entries, entry(themeColour("idle"), "idle"),
      entry(themeColour("near"), "exchange within a node"), entry(themeColour("far"), "exchange between nodes"));
  }
}

// A strip of tokens in the colours of their owners.
class StripView {
  constructor(name, axis, pass, page) {
    Object.assign(this, {name, axis, pass, page});
    const label = `${name} and their owners: ${counted(axis.order.length, "segment")}`;
    this.canvas = element("canvas", {role: "img", "aria-label": label});
    this.canvas.style.width = "100%";
    const at = (event) => axis.find((event.offsetX - 60) / (this.width - 66));
    const selection = (event) => {
      const segment = at(event);
      return segment < 0 ? null : {kind: "segment", rank: axis.segments[segment].owner, segment, axis, name};
    };
    this.canvas.addEventListener("mousemove", (event) => page.point(selection(event)));
    this.canvas.addEventListener("mouseleave", () => page.point(null));
    this.canvas.addEventListener("click", (event) => page.pin(selection(event)));
  }
  draw(rank = -1) {
    const {axis, pass} = this;
    this.width = Math.max(200, this.canvas.parentElement.clientWidth);
    const context = sized(this.canvas, this.width, 46);
    const wide = this.width - 66;
    context.textBaseline = "middle";
    context.fillStyle = themeColour("faint");
    context.fillText(this.name, 4, 12);
    for (const i of axis.order) {
      const segment = axis.segments[i];
      const x = 60 + segment.begin * wide, width = (segment.end - segment.begin) * wide;
      context.globalAlpha = rank < 0 || rank === segment.owner ? 1 : 0.22;
      context.fillStyle = pass.colours[segment.owner];
      context.fillRect(x, 0, Math.max(0.5, width - (width > 4 ? 0.7 : 0)), 26);
      if (width < 20) continue;
      context.textAlign = "center";
      context.fillStyle = "#111111";
      context.fillText(segment.owner, x + width / 2, 13);
    }
    context.globalAlpha = 1;
    context.fillStyle = themeColour("faint");
    for (let tick = 0; tick <= 4; ++tick) {
      context.textAlign = ["left", "center", "center", "center", "right"][tick];
      const words = axis.strided ? (tick === 0 ? "segments interleave; each is drawn whole" : "")
        : tokensInWords(Math.round(axis.first + axis.tokens * tick / 4));
      context.fillText(words, 60 + wide * tick / 4, 37);
    }
  }
}

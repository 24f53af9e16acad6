// A timeline: a row for each rank, in it the compute lane above the near and the far one.

class TimelineView {
  // `seconds` is what the whole width stands for, so that timelines next to each other share a scale.
  constructor(name, timeline, seconds) {
    this.timeline = timeline;
    this.pass = timeline.pass;
    this.seconds = seconds;
    this.tilesCanvas = element("canvas");
    this.canvas = element("canvas", {tabindex: 0, role: "img"});
    this.name = `${name} ${this.pass.data.pass}, ${timeline.title}`;
    this.caption = element("figcaption", {}, `${this.name}: ${secondsInWords(timeline.seconds)}, ` +
      `${percent(Math.max(0, timeline.idle()))} idle`);
    this.canvas.setAttribute("aria-label", `${this.caption.textContent}; the ranks' figures are in the table below`);
    this.figure = element("figure", {}, this.caption, element("div", {class: "stack"}, this.tilesCanvas, this.canvas));
  }
  // Gives the number of spans.
  draw() {
    const {pass, timeline} = this;
    const width = Math.max(200, this.figure.clientWidth);
    const row = Math.min(40, Math.max(4, 560 / pass.ranks));
    const links = timeline.hasFar ? 2 : timeline.hasNear ? 1 : 0;
    const link = row * (links === 2 ? 0.18 : links === 1 ? 0.25 : 0);
    const left = 34, right = row >= 12 ? 46 : 4;
    this.plot = {left, top: 18, width: width - left - right, row, height: row * pass.ranks,
                 compute: row * 0.92 - links * link, near: links > 0 ? link : 0, far: links > 1 ? link : 0};
    this.width = width;
    const height = this.plot.top + this.plot.height + 4;
    this.context = sized(this.tilesCanvas, width, height);
    this.marks = sized(this.canvas, width, height);
    this.drawAxis();
    let spans = 0;
    for (let rank = 0; rank < pass.ranks; ++rank) spans += this.drawRank(rank);
    return spans;
  }
  x(share) {
    return this.plot.left + share * this.plot.width * this.timeline.seconds / this.seconds;
  }
  lane(rank, lane) {
    const {top, row, compute, near, far} = this.plot;
    const y = top + row * rank;
    return lane === 0 ? [y, compute] : lane === 1 ? [y + compute, near] : [y + compute + near, far];
  }
  drawAxis() {
    const {context, plot} = this;
    const rough = this.seconds / 5, power = 10 ** Math.floor(Math.log10(rough || 1));
    const distance = power * ([1, 2, 5].find((factor) => factor * power >= rough) || 10);
    context.fillStyle = themeColour("faint");
    context.strokeStyle = themeColour("line");
    context.lineWidth = 0.7;
    context.textBaseline = "top";
    for (let tick = 0; this.seconds > 0 && tick * distance <= this.seconds * 1.0001; ++tick) {
      const x = plot.left + plot.width * tick * distance / this.seconds;
      context.textAlign = tick === 0 ? "left" : x > this.width - 34 ? "right" : "center";
      const [unit, name] = distance >= 0.1 ? [1, "s"] : distance >= 1e-4 ? [1e-3, "ms"] : [1e-6, "µs"];
      context.fillText(`${Number((tick * distance / unit).toPrecision(4))} ${name}`, x, 2);
      context.beginPath();
      context.moveTo(x, 14);
      context.lineTo(x, plot.top + plot.height);
      context.stroke();
    }
    const every = Math.max(1, 2 ** Math.ceil(Math.log2(13 / plot.row)));
    context.textBaseline = "middle";
    for (let rank = 0; rank < this.pass.ranks; rank += every) {
      context.textAlign = "right";
      context.fillText(rank, plot.left - 5, plot.top + plot.row * rank + Math.max(plot.row / 2, 5));
      if (plot.row < 12) continue;
      context.textAlign = "left";
      const idle = Math.max(0, 1 - this.timeline.busy[rank]);
      context.fillText(percent(idle), plot.left + plot.width + 4, plot.top + plot.row * (rank + 0.5));
    }
  }
  drawRank(rank) {
    const {context, timeline} = this;
    const lanes = timeline.spans[rank];
    const [y, height] = this.lane(rank, 0);
    context.fillStyle = themeColour("idle");
    context.fillRect(this.plot.left, y, this.x(1) - this.plot.left, height);
    let spans = 0;
    const merge = themeColour("merge");
    lanes[0].forEach((span, at) => {
      if (span === null) return;
      ++spans;
      this.drawTiles(rank, at, span, y, height, merge);
    });
    for (const lane of [1, 2]) {
      context.fillStyle = themeColour(LANES[lane]);
      const [top, thick] = this.lane(rank, lane);
      for (const span of lanes[lane]) {
        if (span === null) continue;
        ++spans;
        if (thick > 0) context.fillRect(this.x(span[0]), top, this.spanWidth(span), Math.max(thick - 0.5, 0.5));
      }
    }
    return spans;
  }
  spanWidth(span) {
    return Math.max(0.3, this.x(span[1]) - this.x(span[0]) - (this.plot.row > 8 ? 0.6 : 0));
  }
  // A step's tiles next to each other, as wide as their visible pairs, in the colours of the owners of their keys.
  drawTiles(rank, at, span, y, height, merge) {
    const {context, pass} = this;
    const tiles = this.tilesOf(rank, at);
    if (tiles.length === 0) {
      context.fillStyle = pass.stepTiles ? merge : pass.colours[rank];
      context.fillRect(this.x(span[0]), y, this.spanWidth(span), height);
      return;
    }
    for (const [index, begin, end] of this.parts(tiles, span)) {
      const tile = pass.tiles[index];
      context.fillStyle = pass.colours[pass.keys.segments[tile.k].owner];
      const width = Math.max(0.3, this.x(end) - this.x(begin) - (this.plot.row > 8 ? 0.6 : 0));
      context.fillRect(this.x(begin), y, width, height);
      const owner = pass.queries.segments[tile.q].owner;
      if (owner !== rank && height > 6) {
        context.fillStyle = pass.colours[owner];
        context.fillRect(this.x(begin), y, width, height * 0.25);
      }
    }
  }
  tilesOf(rank, at) {
    return this.pass.stepTiles ? this.pass.stepTiles[rank][at] : [];
  }
  parts(tiles, span) {
    const sum = tiles.reduce((pairs, index) => pairs + this.pass.tiles[index].pairs, 0) || 1;
    let at = span[0];
    return tiles.map((index) => {
      const begin = at;
      at += (span[1] - span[0]) * this.pass.tiles[index].pairs / sum;
      return [index, begin, at];
    });
  }
  // What lies at a point: {rank, lane, at, tile}, of which only the rank may be known, or null.
  find(x, y) {
    const {plot, timeline} = this;
    const rank = Math.floor((y - plot.top) / plot.row);
    if (rank < 0 || rank >= this.pass.ranks || y < plot.top) return null;
    const found = {rank, lane: 0, at: -1, tile: -1};
    const inside = y - plot.top - rank * plot.row;
    if (plot.row >= 8 && inside > plot.compute) found.lane = inside > plot.compute + plot.near && plot.far > 0 ? 2 : 1;
    const share = (x - plot.left) / (plot.width * timeline.seconds / this.seconds);
    found.at = timeline.spans[rank][found.lane].findIndex((span) => span && span[0] <= share && share < span[1]);
    if (found.at >= 0 && found.lane === 0) {
      const span = timeline.spans[rank][0][found.at];
      const parts = this.parts(this.tilesOf(rank, found.at), span);
      const part = parts.find(([, begin, end]) => begin <= share && share < end);
      if (part) found.tile = part[0];
    }
    return found;
  }
  // Marks a rank's row; with `steps` ([rank, lane, step]) and messages what happens in it.
  mark(rank, steps, messages) {
    const {marks, plot} = this;
    marks.clearRect(0, 0, this.width, plot.top + plot.height + 4);
    if (rank < 0 || rank >= this.pass.ranks) return;
    marks.fillStyle = themeColour("back");
    marks.globalAlpha = plot.row < 8 ? 0.35 : 0.55;
    const below = plot.top + plot.row * (rank + 1);
    marks.fillRect(plot.left, plot.top, plot.width + 50, plot.row * rank);
    marks.fillRect(plot.left, below, plot.width + 50, plot.top + plot.height - below);
    marks.globalAlpha = 1;
    marks.strokeStyle = themeColour("text");
    marks.fillStyle = themeColour("text");
    marks.lineWidth = 1.6;
    const span = (of, lane, at) => this.timeline.spans[of][lane][at];
    for (const [of, lane, at] of steps) {
      const found = span(of, lane, at);
      if (!found) continue;
      const [y, height] = this.lane(of, lane);
      marks.strokeRect(this.x(found[0]) - 1, y - 1, this.spanWidth(found) + 2, Math.max(height, 1) + 1);
    }
    for (const message of messages) {
      const from = span(message.from, message.lane, message.at);
      const to = message.arrival === undefined ? null : span(message.to, message.lane, message.arrival);
      if (!from || !to) continue;
      const middle = (of) => this.lane(of, message.lane)[0] + this.lane(of, message.lane)[1] / 2;
      marks.beginPath();
      marks.moveTo(this.x(from[0]), middle(message.from));
      marks.lineTo(this.x(to[1]), middle(message.to));
      marks.stroke();
      marks.beginPath();
      marks.arc(this.x(to[1]), middle(message.to), 2.6, 0, 2 * Math.PI);
      marks.fill();
    }
  }
}

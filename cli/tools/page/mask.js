// The mask: tiles below, marks of what is pointed at above.

class MaskView {
  constructor(tiles, marks) {
    this.tilesCanvas = tiles;
    this.marksCanvas = marks;
    this.whole();
  }
  whole() {
    this.view = [0, 1, 0, 1];  // what is seen of the axes of keys and of queries
  }
  zoom(factor, x, y) {
    const part = ([begin, end], at) => {
      const length = Math.min(1, Math.max(1e-4, (end - begin) / factor));
      const from = Math.min(1 - length, Math.max(0, at - length * (at - begin) / (end - begin)));
      return [from, from + length];
    };
    const [x0, x1, y0, y1] = this.view;
    this.view = [...part([x0, x1], x ?? (x0 + x1) / 2), ...part([y0, y1], y ?? (y0 + y1) / 2)];
  }
  move(dx, dy) {
    const shift = (begin, end, by) => {
      const from = Math.min(1 - (end - begin), Math.max(0, begin + by));
      return [from, from + end - begin];
    };
    const [x0, x1, y0, y1] = this.view;
    this.view = [...shift(x0, x1, dx * (x1 - x0)), ...shift(y0, y1, dy * (y1 - y0))];
  }
  // Lays out and draws; gives the number of tiles of the head group.
  draw(pass, group) {
    this.pass = pass;
    this.group = group;
    const width = Math.max(200, this.tilesCanvas.parentElement.clientWidth);
    const ratio = Math.min(1, Math.max(0.25, pass.queries.tokens / pass.keys.tokens));
    const left = 64, top = 34, strip = 10;
    this.plot = {left, top, width: width - left - 6, height: (width - left - 6) * ratio, strip};
    const height = top + this.plot.height + 6;
    this.context = sized(this.tilesCanvas, width, height);
    this.marks = sized(this.marksCanvas, width, height);
    const tiles = pass.tiles.filter((tile) => tile.group === group);
    this.drawn = tiles;
    this.drawTiles(tiles);
    this.drawAxes();
    return tiles.length;
  }
  x(at) {
    return this.plot.left + (at - this.view[0]) / (this.view[1] - this.view[0]) * this.plot.width;
  }
  y(at) {
    return this.plot.top + (at - this.view[2]) / (this.view[3] - this.view[2]) * this.plot.height;
  }
  rect(tile) {
    const [k0, k1, q0, q1] = this.pass.box(tile);
    return [this.x(k0), this.y(q0), this.x(k1) - this.x(k0), this.y(q1) - this.y(q0)];
  }
  clip(context) {
    context.beginPath();
    context.rect(this.plot.left, this.plot.top, this.plot.width, this.plot.height);
    context.clip();
  }
  drawTiles(tiles) {
    const {pass, context} = this;
    // By position the visible part of a tile is what lies in a band; otherwise a tile is as strong as it is visible.
    const shaped = pass.data.bands !== null && !pass.queries.strided && !pass.keys.strided;
    context.save();
    this.clip(context);
    const fill = (target, tile) => {
      const [x, y, w, h] = this.rect(tile);
      target.fillStyle = pass.colours[tile.rank];
      target.fillRect(x, y, Math.max(w, 0.5), Math.max(h, 0.5));
    };
    if (shaped) {
      const layer = document.createElement("canvas");
      layer.width = this.tilesCanvas.width;
      layer.height = this.tilesCanvas.height;
      const target = layer.getContext("2d");
      target.setTransform(context.getTransform());
      for (const tile of tiles) fill(target, tile);
      target.globalCompositeOperation = "destination-in";
      target.fill(this.bandsPath());
      context.globalAlpha = 0.38;
      for (const tile of tiles) fill(context, tile);
      context.globalAlpha = 1;
      context.setTransform(1, 0, 0, 1, 0, 0);
      context.drawImage(layer, 0, 0);
    } else {
      for (const tile of tiles) {
        context.globalAlpha = tile.cell ? 1 : 0.6 + 0.4 * tile.pairs / tile.all;
        fill(context, tile);
      }
    }
    context.restore();
    this.drawBorders(tiles);
  }
  // Edges where tiles are large enough to have some, ranks where they are large enough to be read.
  drawBorders(tiles) {
    const {context} = this;
    context.save();
    this.clip(context);
    context.strokeStyle = themeColour("back");
    context.textAlign = "center";
    context.textBaseline = "middle";
    const right = this.plot.left + this.plot.width, bottom = this.plot.top + this.plot.height;
    for (const tile of tiles) {
      const [x, y, w, h] = this.rect(tile);
      if (Math.min(w, h) < 5 || x > right || y > bottom || x + w < 0 || y + h < 0) continue;
      context.lineWidth = 0.5;
      context.strokeRect(x, y, w, h);
      if (w < 22 || h < 14) continue;
      context.lineWidth = 2.5;
      context.fillStyle = themeColour("text");
      context.strokeText(tile.rank, x + w / 2, y + h / 2);
      context.fillText(tile.rank, x + w / 2, y + h / 2);
    }
    context.restore();
  }
  // Bands as polygons: a rectangle of queries and keys, cut by two bounds of query - key.
  bandsPath() {
    const {keys, queries} = this.pass;
    const path = new Path2D();
    for (const [q0, q1, k0, k1, lo, hi] of this.pass.data.bands) {
      let corners = [[k0, q0], [k1, q0], [k1, q1], [k0, q1]];
      // A pair is a square, whose middle the bound goes through.
      if (lo !== null) corners = halfPlane(corners, ([k, q]) => q - k - (lo - 0.5));
      if (hi !== null) corners = halfPlane(corners, ([k, q]) => hi + 0.5 - (q - k));
      corners.forEach(([k, q], i) => {
        const x = this.x(k / keys.tokens), y = this.y((q - queries.first) / queries.tokens);
        if (i === 0) path.moveTo(x, y); else path.lineTo(x, y);
      });
      path.closePath();
    }
    return path;
  }
  drawAxes() {
    const {context, pass, plot} = this;
    context.save();
    context.strokeStyle = themeColour("line");
    context.strokeRect(plot.left, plot.top, plot.width, plot.height);
    const strip = (axis, along) => {
      for (const i of axis.order) {
        const s = axis.segments[i];
        context.fillStyle = pass.colours[s.owner];
        const at = along ? this.x(s.begin) : this.y(s.begin);
        const length = Math.max(0.5, (along ? this.x(s.end) : this.y(s.end)) - at);
        if (along) context.fillRect(at, plot.top - plot.strip - 2, length, plot.strip);
        else context.fillRect(plot.left - plot.strip - 2, at, plot.strip, length);
      }
    };
    const clipped = (x, y, w, h, draw) => {
      context.save();
      context.beginPath();
      context.rect(x, y, w, h);
      context.clip();
      draw();
      context.restore();
    };
    clipped(plot.left, 0, plot.width, plot.top, () => strip(pass.keys, true));
    clipped(0, plot.top, plot.left, plot.height, () => strip(pass.queries, false));
    context.fillStyle = themeColour("faint");
    const label = (axis, share) => axis.strided ? "" : tokensInWords(Math.round(axis.first + share * axis.tokens));
    const [x0, x1, y0, y1] = this.view;
    context.textBaseline = "top";
    for (const [share, align] of [[0, "left"], [0.5, "center"], [1, "right"]]) {
      context.textAlign = align;
      const name = share === 0.5 ? "keys " : "";
      context.fillText(name + label(pass.keys, x0 + share * (x1 - x0)), plot.left + share * plot.width, 5);
      context.textAlign = "right";
      const at = plot.top + share * (plot.height - 11);
      context.fillText(label(pass.queries, y0 + share * (y1 - y0)), plot.left - plot.strip - 5, at);
    }
    context.fillText("queries", plot.left - plot.strip - 5, plot.top + plot.height / 2 + 8);
    context.restore();
  }
  // The tile at a point of the canvas, or -1.
  tileAt(x, y) {
    const {pass, plot} = this;
    if (x < plot.left || y < plot.top || x > plot.left + plot.width || y > plot.top + plot.height) return -1;
    const [at, below] = this.place(x, y);
    const k = pass.keys.find(at), q = pass.queries.find(below);
    return k < 0 || q < 0 ? -1 : pass.tileAt(this.group, q, k);
  }
  place(x, y) {
    const [x0, x1, y0, y1] = this.view;
    return [x0 + (x - this.plot.left) / this.plot.width * (x1 - x0),
            y0 + (y - this.plot.top) / this.plot.height * (y1 - y0)];
  }
  // The live tile nearest in a direction, from a tile on.
  next(index, dx, dy) {
    const {pass} = this;
    const tile = pass.tiles[index];
    const axis = dx !== 0 ? pass.keys : pass.queries;
    const begin = dx + dy > 0 ? (dx !== 0 ? tile.lastK ?? tile.k : tile.lastQ ?? tile.q) : dx !== 0 ? tile.k : tile.q;
    for (let i = axis.place.get(begin) + dx + dy; i >= 0 && i < axis.order.length; i += dx + dy) {
      const found = pass.tileAt(this.group, dx !== 0 ? tile.q : axis.order[i], dx !== 0 ? axis.order[i] : tile.k);
      if (found >= 0) return found;
    }
    return index;
  }
  // Marks a rank's tiles, and one tile.
  mark(rank, index) {
    const {marks, plot} = this;
    marks.clearRect(0, 0, plot.left + plot.width + 6, plot.top + plot.height + 6);
    if (rank < 0) return;
    marks.save();
    this.clip(marks);
    marks.globalAlpha = 0.72;
    marks.fillStyle = themeColour("back");
    marks.fillRect(plot.left, plot.top, plot.width, plot.height);
    marks.globalAlpha = 1;
    marks.strokeStyle = themeColour("text");
    marks.lineWidth = 0.6;
    for (const tile of this.drawn) {
      if (tile.rank !== rank) continue;
      const [x, y, w, h] = this.rect(tile);
      marks.clearRect(x, y, Math.max(w, 1), Math.max(h, 1));
      if (w > 4 && h > 4) {
        marks.strokeRect(x, y, w, h);
      } else {
        marks.fillStyle = this.pass.colours[rank];
        marks.fillRect(x, y, Math.max(w, 1), Math.max(h, 1));
      }
    }
    if (index >= 0) {
      const [x, y, w, h] = this.rect(this.pass.tiles[index]);
      marks.lineWidth = 2.5;
      marks.strokeRect(x - 1, y - 1, w + 2, h + 2);
      marks.lineWidth = 0.7;
      marks.setLineDash([3, 3]);
      marks.beginPath();
      marks.moveTo(plot.left, y + h / 2);
      marks.lineTo(x, y + h / 2);
      marks.moveTo(x + w / 2, plot.top);
      marks.lineTo(x + w / 2, y);
      marks.stroke();
    }
    marks.restore();
  }
}

// The part of a convex polygon in which `inside` is not negative.
function halfPlane(corners, inside) {
  const kept = [];
  corners.forEach((corner, i) => {
    const next = corners[(i + 1) % corners.length], a = inside(corner), b = inside(next);
    if (a >= 0) kept.push(corner);
    if (a * b < 0) kept.push([0, 1].map((axis) => corner[axis] + (next[axis] - corner[axis]) * a / (a - b)));
  });
  return kept;
}

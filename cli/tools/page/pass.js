// One pass of a schedule: segments, tiles, messages, as C++ wrote them (rank_data.hpp, timeline_data.hpp).

const TICKS = 100000;
const KINDS = ["q", "kv", "o", "dq", "dkv"];
const LANES = ["compute", "near", "far"];

// Where the segments of queries or of keys lie on an axis from 0 to 1: by position, or, where they interleave, one
// behind the other.
class Axis {
  constructor(flat, first, tokens) {
    this.segments = [];
    for (let i = 0; i < flat.length; i += 4) {
      this.segments.push({start: flat[i], count: flat[i + 1], stride: flat[i + 2], owner: flat[i + 3]});
    }
    this.strided = this.segments.some((s) => s.stride > 1 && s.count > 1);
    this.first = first;
    this.tokens = Math.max(1, tokens);
    let before = 0;
    for (const segment of this.segments) {
      segment.begin = (this.strided ? before : segment.start - first) / this.tokens;
      before += segment.count;
      segment.end = segment.begin + segment.count / this.tokens;
    }
    this.order = this.segments.map((_, i) => i).filter((i) => this.segments[i].count > 0)
      .sort((i, j) => this.segments[i].begin - this.segments[j].begin);
    this.place = new Map(this.order.map((segment, place) => [segment, place]));
  }
  // The segment at a place of the axis, or -1.
  find(at) {
    let low = 0, high = this.order.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.segments[this.order[middle]].end > at) high = middle; else low = middle + 1;
    }
    const found = this.order[low];
    return found !== undefined && this.segments[found].begin <= at ? found : -1;
  }
  words(index) {
    const s = this.segments[index];
    if (s.count === 0) return "no token";
    if (s.stride > 1 && s.count > 1) return `every ${s.stride}th token from ${s.start} on (${s.count})`;
    return s.count === 1 ? `token ${s.start}` : `tokens ${s.start} to ${s.start + s.count - 1}`;
  }
}

class Pass {
  constructor(data, ranks) {
    this.data = data;
    this.ranks = ranks;
    this.groups = data.groups.length;
    const problem = data.problem;
    this.queries = new Axis(data.queries, problem.seq_kv - problem.seq, problem.seq);
    this.keys = new Axis(data.keys || data.queries, 0, problem.seq_kv);
    this.colours = Array.from({length: ranks}, (_, rank) => rankColour(rank, ranks));
    if (data.steps) this.readTiles();
    else this.readCells();
    this.timelines = data.timelines.map((timeline) => new Timeline(timeline, this));
    this.pairs = data.totals.pairs.reduce((sum, n) => sum + n, 0);
  }
  readTiles() {
    const Q = this.queries.segments.length, K = this.keys.segments.length;
    this.tiles = [];
    this.numbers = new Map();
    this.stepTiles = [];  // a rank, a step of its compute lane: tiles
    this.data.steps.forEach((lanes, rank) => {
      this.stepTiles.push(lanes[0].map((step, at) => {
        const tiles = [];
        for (let i = 1; i < step.length; ++i) {
          if (step[i] < 0) {
            this.tiles[tiles[tiles.length - 1]].pairs = -step[i];
            continue;
          }
          const k = step[i] % K, row = (step[i] - k) / K, q = row % Q;
          const pairs = this.queries.segments[q].count * this.keys.segments[k].count;
          tiles.push(this.tiles.length);
          this.numbers.set(step[i], this.tiles.length);
          this.tiles.push({group: (row - q) / Q, q, k, rank, at, number: step[0], pairs, all: pairs});
        }
        return tiles;
      }));
    });
  }
  // Cells as tiles: of the segments from one to another, in the order of the axis.
  readCells() {
    const {queries, keys, rows} = this.data.cells;
    const Q = this.queries.segments.length, K = this.keys.segments.length;
    const part = (axis, cell, cells) => {
      const place = (i) => Math.ceil(i * axis.order.length / cells);
      return axis.order.slice(place(cell), place(cell + 1));
    };
    this.tiles = [];
    this.numbers = new Map();
    rows.forEach((row, number) => {
      const group = Math.floor(number / queries), inside = part(this.queries, number % queries, queries);
      for (let i = 0, column = 0; i < row.length; i += 2) {
        for (let j = 0; j < row[i + 1]; ++j, ++column) {
          if (row[i] < 0) continue;
          const others = part(this.keys, column, keys);
          for (const q of inside) {
            for (const k of others) this.numbers.set((group * Q + q) * K + k, this.tiles.length);
          }
          this.tiles.push({group, rank: row[i], cell: true, q: inside[0], lastQ: inside[inside.length - 1],
                           k: others[0], lastK: others[others.length - 1]});
        }
      }
    });
  }
  tileAt(group, q, k) {
    const Q = this.queries.segments.length, K = this.keys.segments.length;
    const found = this.numbers.get((group * Q + q) * K + k);
    return found === undefined ? -1 : found;
  }
  // [left, right, top, bottom] on the axes of keys and queries.
  box(tile) {
    const queries = this.queries.segments, keys = this.keys.segments;
    return [keys[tile.k].begin, keys[tile.lastK ?? tile.k].end,
            queries[tile.q].begin, queries[tile.lastQ ?? tile.q].end];
  }
  valueNumber(kind, group, segment, contributor) {
    const segments = Math.max(this.queries.segments.length, this.keys.segments.length);
    return KINDS.indexOf(kind) + 5 * (group + this.groups * (segment + segments * (contributor + 1)));
  }
  valueWords(number) {
    const segments = Math.max(this.queries.segments.length, this.keys.segments.length);
    const kind = number % 5, rest = (number - kind) / 5, group = rest % this.groups;
    const place = (rest - group) / this.groups, segment = place % segments;
    const contributor = (place - segment) / segments - 1;
    return `${KINDS[kind]}(g${group}, ${segment})` + (contributor < 0 ? "" : ` of rank ${contributor}`);
  }
  // All messages, when they are first asked for.
  messages() {
    if (this.sent) return this.sent;
    this.sent = [];
    this.byValue = new Map();
    this.bySender = new Map();
    const exchanges = new Map();
    const key = (rank, lane, step) => `${rank} ${lane} ${step[0]} ${step[1]}`;
    if (!this.data.steps) return this.sent;
    this.data.steps.forEach((lanes, rank) => {
      for (const lane of [1, 2]) lanes[lane].forEach((step, at) => exchanges.set(key(rank, lane, step), at));
    });
    this.data.steps.forEach((lanes, from) => {
      for (const lane of [1, 2]) {
        lanes[lane].forEach((step, at) => {
          for (const [to, size, ...values] of step.slice(2)) {
            const arrival = exchanges.get(key(to, lane, step));
            const message = {from, to, lane, at, arrival, number: step[0], bytes: this.data.sizes[size], values};
            this.sent.push(message);
            for (const value of values) {
              if (!this.byValue.has(value)) this.byValue.set(value, []);
              this.byValue.get(value).push(message);
            }
            const sender = `${from} ${lane} ${at}`;
            if (!this.bySender.has(sender)) this.bySender.set(sender, []);
            this.bySender.get(sender).push(message);
          }
        });
      }
    });
    return this.sent;
  }
  sentIn(rank, lane, at) {
    this.messages();
    return this.bySender.get(`${rank} ${lane} ${at}`) || [];
  }
  // What had to come for a tile, hop by hop, and what leaves because of it.
  messagesOf(tile) {
    this.messages();
    const found = [];
    const back = (value, owner) => {
      const hops = this.byValue.get(value) || [];
      for (let at = tile.rank, left = this.ranks; at !== owner && left > 0; --left) {
        const hop = hops.find((each) => each.to === at);
        if (!hop) break;
        found.push({message: hop, value});
        at = hop.from;
      }
    };
    const away = (value, owner) => {
      if (owner === tile.rank) return;
      for (const each of this.byValue.get(value) || []) {
        if (each.from === tile.rank) found.push({message: each, value});
      }
    };
    const q = this.queries.segments[tile.q].owner, k = this.keys.segments[tile.k].owner;
    back(this.valueNumber("kv", tile.group, tile.k, -1), k);
    back(this.valueNumber("q", tile.group, tile.q, -1), q);
    if (this.data.pass === "forward") {
      away(this.valueNumber("o", tile.group, tile.q, tile.rank), q);
    } else {
      away(this.valueNumber("dq", tile.group, tile.q, tile.rank), q);
      away(this.valueNumber("dkv", tile.group, tile.k, tile.rank), k);
    }
    return found;
  }
}

// When steps ran; times are shares of `seconds`.
class Timeline {
  constructor(data, pass) {
    this.title = data.title;
    this.seconds = data.seconds;
    this.exposed = data.exposed_s;
    this.busy = data.busy;
    this.pass = pass;
    this.spans = data.spans.map((lanes) => lanes.map((flat) => {
      const spans = [];
      for (let i = 0, at = 0; i < flat.length; i += 2) {
        if (flat[i] < 0) {
          spans.push(null);
          continue;
        }
        const begin = at + flat[i];
        at = begin + flat[i + 1];
        spans.push([begin / TICKS, at / TICKS]);
      }
      return spans;
    }));
    this.hasFar = this.spans.some((lanes) => lanes[2].length > 0);
    this.hasNear = this.spans.some((lanes) => lanes[1].length > 0);
  }
  idle() {
    return 1 - this.busy.reduce((sum, share) => sum + share, 0) / this.busy.length;
  }
  words(span) {
    return `${secondsInWords(span[0] * this.seconds)} to ${secondsInWords(span[1] * this.seconds)}`;
  }
}
